//! The messages of devices, kernels, lists, blobs and programs, as `proto/tapml.proto` declares and explains them; a test holds both together.
#![allow(missing_docs, reason = "fields are explained in the schema")]

use super::nodes::ServedOp;
use bytes::Bytes;

/// Identity, limits and features of a device.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeviceInfo {
    #[prost(string, tag = "1")]
    pub platform: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub driver: String,
    #[prost(enumeration = "AdapterKind", tag = "4")]
    pub kind: i32,
    #[prost(message, optional, tag = "5")]
    pub limits: Option<Limits>,
    #[prost(message, repeated, tag = "9")]
    pub ops: Vec<ServedOp>,
    #[prost(message, repeated, tag = "13")]
    pub features: Vec<Feature>,
}

/// An ability of a device.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Feature {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

/// The sort of processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum AdapterKind {
    Other = 0,
    Discrete = 1,
    Integrated = 2,
    Cpu = 3,
}

/// Limits as WebGPU defines them.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Limits {
    #[prost(uint64, tag = "1")]
    pub max_buffer_size: u64,
    #[prost(uint64, tag = "2")]
    pub max_binding_size: u64,
    #[prost(uint64, tag = "3")]
    pub max_uniform_size: u64,
    #[prost(uint32, tag = "4")]
    pub max_storage_buffers: u32,
    #[prost(uint32, tag = "5")]
    pub max_invocations: u32,
    #[prost(uint32, tag = "6")]
    pub max_workgroup_size_x: u32,
    #[prost(uint32, tag = "7")]
    pub max_workgroup_size_y: u32,
    #[prost(uint32, tag = "8")]
    pub max_workgroup_size_z: u32,
    #[prost(uint32, tag = "9")]
    pub max_workgroup_memory: u32,
    #[prost(uint32, tag = "10")]
    pub max_groups_per_dim: u32,
    #[prost(uint32, tag = "11")]
    pub min_offset_alignment: u32,
}

/// A zeroed buffer. Its size counts in whole words of 4 bytes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateBuffer {
    #[prost(uint32, tag = "1")]
    pub buffer: u32,
    #[prost(string, tag = "2")]
    pub label: String,
    #[prost(uint64, tag = "3")]
    pub size: u64,
}

/// Frees a buffer once the commands that use it have run.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DestroyBuffer {
    #[prost(uint32, tag = "1")]
    pub buffer: u32,
}

/// Writes bytes; offset and length are multiples of 4, except that a write may end at the buffer's end.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Write {
    #[prost(uint32, tag = "1")]
    pub buffer: u32,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub data: Bytes,
}

/// Waits for all work so far and reads bytes. Answered by one Data or more, the last one marked, or by a Failed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Read {
    #[prost(uint32, tag = "1")]
    pub buffer: u32,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    #[prost(uint64, tag = "3")]
    pub size: u64,
}

/// Compiles a kernel. Answered by Done or Failed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateKernel {
    #[prost(uint32, tag = "1")]
    pub kernel: u32,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(enumeration = "Language", tag = "3")]
    pub language: i32,
    #[prost(string, tag = "4")]
    pub file: String,
    #[prost(string, tag = "5")]
    pub prelude: String,
    #[prost(string, tag = "6")]
    pub text: String,
    #[prost(string, tag = "7")]
    pub entry: String,
    #[prost(message, repeated, tag = "8")]
    pub constants: Vec<Constant>,
    #[prost(enumeration = "BindingKind", repeated, tag = "9")]
    pub bindings: Vec<i32>,
    #[prost(uint32, tag = "10")]
    pub workgroup_x: u32,
    #[prost(uint32, tag = "11")]
    pub workgroup_y: u32,
    #[prost(uint32, tag = "12")]
    pub workgroup_z: u32,
    #[prost(uint32, tag = "13")]
    pub workgroup_memory: u32,
    #[prost(bool, tag = "14")]
    pub needs_f16: bool,
    #[prost(bool, tag = "15")]
    pub needs_subgroups: bool,
    #[prost(bool, tag = "16")]
    pub overlaps: bool,
}

/// The source language of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Language {
    Wgsl = 0,
    Cuda = 1,
}

/// Binding i of a kernel is @group(0) @binding(i).
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum BindingKind {
    Read = 0,
    ReadWrite = 1,
    Uniform = 2,
}

/// The value of an override constant.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Constant {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(double, tag = "2")]
    pub value: f64,
}

/// Frees a kernel. Lists that use it can no longer run.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DestroyKernel {
    #[prost(uint32, tag = "1")]
    pub kernel: u32,
}

/// Prepares a command list.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Record {
    #[prost(uint32, tag = "1")]
    pub list: u32,
    #[prost(message, repeated, tag = "2")]
    pub commands: Vec<Command>,
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// One command of a list.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Command {
    #[prost(oneof = "Work", tags = "1, 2, 3")]
    pub work: Option<Work>,
}

/// What a [`Command`] holds.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Work {
    #[prost(message, tag = "1")]
    Dispatch(Dispatch),
    #[prost(message, tag = "2")]
    Copy(Copy),
    #[prost(message, tag = "3")]
    Fill(Fill),
}

/// Runs a kernel on a grid of workgroups. A grid with a zero runs nothing.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Dispatch {
    #[prost(string, tag = "1")]
    pub label: String,
    #[prost(uint32, tag = "2")]
    pub kernel: u32,
    #[prost(message, repeated, tag = "3")]
    pub bindings: Vec<Binding>,
    #[prost(message, optional, tag = "4")]
    pub x: Option<Size>,
    #[prost(message, optional, tag = "5")]
    pub y: Option<Size>,
    #[prost(message, optional, tag = "6")]
    pub z: Option<Size>,
}

/// A range of a buffer; size 0 means to its end.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Binding {
    #[prost(uint32, tag = "1")]
    pub buffer: u32,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    #[prost(uint64, tag = "3")]
    pub size: u64,
}

/// ceil((constant + sum of factor * symbol) / divisor); a divisor of 0 counts as 1.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Size {
    #[prost(uint64, tag = "1")]
    pub constant: u64,
    #[prost(message, repeated, tag = "2")]
    pub terms: Vec<Term>,
    #[prost(uint32, tag = "3")]
    pub divisor: u32,
}

/// A factor of a symbol.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Term {
    #[prost(string, tag = "1")]
    pub symbol: String,
    #[prost(uint64, tag = "2")]
    pub factor: u64,
}

/// Copies bytes between two buffers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Copy {
    #[prost(uint32, tag = "1")]
    pub src: u32,
    #[prost(message, optional, tag = "2")]
    pub src_offset: Option<Size>,
    #[prost(uint32, tag = "3")]
    pub dst: u32,
    #[prost(message, optional, tag = "4")]
    pub dst_offset: Option<Size>,
    #[prost(message, optional, tag = "5")]
    pub size: Option<Size>,
}

/// Fills a whole buffer with a word.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Fill {
    #[prost(uint32, tag = "1")]
    pub buffer: u32,
    #[prost(uint32, tag = "2")]
    pub word: u32,
}

/// Runs a list as one submission.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Replay {
    #[prost(uint32, tag = "1")]
    pub list: u32,
    #[prost(message, repeated, tag = "2")]
    pub symbols: Vec<Symbol>,
}

/// Writes, runs a list, waits, and reads: a step of what was prepared once, in one round trip.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Step {
    #[prost(message, repeated, tag = "1")]
    pub writes: Vec<Write>,
    #[prost(uint32, tag = "2")]
    pub list: u32,
    #[prost(message, repeated, tag = "3")]
    pub symbols: Vec<Symbol>,
    #[prost(message, repeated, tag = "4")]
    pub reads: Vec<Read>,
}

/// Several steps of one list that need no answer of the one before.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Turns {
    #[prost(uint32, tag = "1")]
    pub list: u32,
    #[prost(message, repeated, tag = "2")]
    pub turns: Vec<Turn>,
    #[prost(message, repeated, tag = "3")]
    pub reads: Vec<Read>,
}

/// One run of a list.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Turn {
    #[prost(message, repeated, tag = "1")]
    pub writes: Vec<Write>,
    #[prost(message, repeated, tag = "2")]
    pub symbols: Vec<Symbol>,
}

/// The value of a symbol: at most eight letters, digits or underscores, no digit first.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Symbol {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub value: u64,
}

/// Frees a list.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DestroyList {
    #[prost(uint32, tag = "1")]
    pub list: u32,
}

/// Waits for all work so far. Answered by Done or Failed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Wait {}

/// Asks what a checking device has found since the last time. Answered by Findings.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TakeFindings {}

/// What a checking device has found.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Findings {
    #[prost(message, repeated, tag = "1")]
    pub findings: Vec<Finding>,
}

/// One defect at one place of a kernel.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Finding {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "2")]
    pub kernel: String,
    #[prost(string, tag = "3")]
    pub label: String,
    #[prost(string, tag = "4")]
    pub file: String,
    #[prost(uint32, tag = "5")]
    pub line: u32,
    #[prost(uint32, tag = "6")]
    pub column: u32,
    #[prost(string, tag = "7")]
    pub source: String,
    #[prost(string, tag = "8")]
    pub message: String,
    #[prost(uint32, tag = "9")]
    pub workgroup_x: u32,
    #[prost(uint32, tag = "10")]
    pub workgroup_y: u32,
    #[prost(uint32, tag = "11")]
    pub workgroup_z: u32,
    #[prost(uint32, tag = "12")]
    pub invocation: u32,
    #[prost(uint64, tag = "13")]
    pub count: u64,
}

/// Which of these blobs the agent holds. Blobs are named by the BLAKE3 hash of their bytes (32 bytes) and are at most
/// 4 MiB. Those found stay until 16 more were asked for or put. At most 16 at once. Answered by HeldBlobs.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HasBlobs {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub hashes: Vec<Bytes>,
}

/// One flag for each hash asked for.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeldBlobs {
    #[prost(bool, repeated, tag = "1")]
    pub held: Vec<bool>,
}

/// Gives the agent a blob to keep. It computes the hash itself.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PutBlob {
    #[prost(bytes = "bytes", tag = "1")]
    pub data: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub hash: Bytes,
}

/// Writes a blob into a buffer, as Write does.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WriteBlob {
    #[prost(uint32, tag = "1")]
    pub buffer: u32,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub hash: Bytes,
}

/// Compiles and allocates a program: the JSON of a compiled graph (crates/kernels/src/program.rs), cut into blobs, and its
/// weights. Answered by Done, or by Failed; the detail "missing" names the hash of a blob that is not held.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LoadProgram {
    #[prost(uint32, tag = "1")]
    pub program: u32,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub pieces: Vec<Bytes>,
    #[prost(message, repeated, tag = "3")]
    pub weights: Vec<Weight>,
}

/// A weight as the checkpoint stores it, cut into blobs.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Weight {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub size: u64,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub pieces: Vec<Bytes>,
}

/// Runs a program once with these inputs and reads outputs. Answered by Data, the bytes of the outputs one after the
/// other in the order asked for, or by Failed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RunProgram {
    #[prost(uint32, tag = "1")]
    pub program: u32,
    #[prost(message, repeated, tag = "2")]
    pub symbols: Vec<Symbol>,
    #[prost(message, repeated, tag = "3")]
    pub inputs: Vec<Input>,
    #[prost(string, repeated, tag = "4")]
    pub outputs: Vec<String>,
    #[prost(bool, tag = "5")]
    pub reset: bool,
}

/// An input of a program: its elements one after the other, little-endian.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Input {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub data: Bytes,
}

/// Frees a program.
#[derive(Clone, PartialEq, prost::Message)]
pub struct UnloadProgram {
    #[prost(uint32, tag = "1")]
    pub program: u32,
}
