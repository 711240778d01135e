//! The messages around a session, as `proto/tapml.proto` declares and explains them; a test holds both together.
#![allow(missing_docs, reason = "fields are explained in the schema")]

use super::commands::{
    CreateBuffer, CreateKernel, DestroyBuffer, DestroyKernel, DestroyList, DeviceInfo, Findings, HasBlobs,
    HeldBlobs, LoadProgram, PutBlob, Read, Record, Replay, RunProgram, Step, TakeFindings, Turns,
    UnloadProgram, Wait, Write, WriteBlob,
};
use super::nodes::{CallGraph, CallNode, DropTensor, NodeResult, PutTensor};
use bytes::Bytes;

/// From a client to an agent.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ToAgent {
    #[prost(uint64, tag = "1")]
    pub seq: u64,
    #[prost(
        oneof = "Request",
        tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 30, 31, 32, 33"
    )]
    pub request: Option<Request>,
}

/// What a [`ToAgent`] holds.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Request {
    #[prost(message, tag = "2")]
    Hello(Hello),
    #[prost(message, tag = "3")]
    Ping(Ping),
    #[prost(message, tag = "4")]
    Cancel(Cancel),
    #[prost(message, tag = "5")]
    CreateBuffer(CreateBuffer),
    #[prost(message, tag = "6")]
    DestroyBuffer(DestroyBuffer),
    #[prost(message, tag = "7")]
    Write(Write),
    #[prost(message, tag = "8")]
    Read(Read),
    #[prost(message, tag = "9")]
    CreateKernel(CreateKernel),
    #[prost(message, tag = "10")]
    DestroyKernel(DestroyKernel),
    #[prost(message, tag = "11")]
    Record(Record),
    #[prost(message, tag = "12")]
    Replay(Replay),
    #[prost(message, tag = "13")]
    DestroyList(DestroyList),
    #[prost(message, tag = "14")]
    Wait(Wait),
    #[prost(message, tag = "15")]
    TakeFindings(TakeFindings),
    #[prost(message, tag = "16")]
    HasBlobs(HasBlobs),
    #[prost(message, tag = "17")]
    PutBlob(PutBlob),
    #[prost(message, tag = "18")]
    WriteBlob(WriteBlob),
    #[prost(message, tag = "19")]
    LoadProgram(LoadProgram),
    #[prost(message, tag = "20")]
    RunProgram(RunProgram),
    #[prost(message, tag = "21")]
    UnloadProgram(UnloadProgram),
    #[prost(message, tag = "22")]
    Step(Step),
    #[prost(message, tag = "23")]
    Turns(Turns),
    #[prost(message, tag = "30")]
    PutTensor(PutTensor),
    #[prost(message, tag = "31")]
    DropTensor(DropTensor),
    #[prost(message, tag = "32")]
    CallNode(CallNode),
    #[prost(message, tag = "33")]
    CallGraph(CallGraph),
}

/// From an agent to a client.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ToClient {
    #[prost(uint64, tag = "1")]
    pub seq: u64,
    #[prost(oneof = "Reply", tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 20")]
    pub reply: Option<Reply>,
}

/// What a [`ToClient`] holds.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Reply {
    #[prost(message, tag = "2")]
    Welcome(Welcome),
    #[prost(message, tag = "3")]
    Failed(Failed),
    #[prost(message, tag = "4")]
    Pong(Pong),
    #[prost(message, tag = "5")]
    Credit(Credit),
    #[prost(message, tag = "6")]
    Done(Done),
    #[prost(message, tag = "7")]
    Data(Data),
    #[prost(message, tag = "8")]
    Findings(Findings),
    #[prost(message, tag = "9")]
    HeldBlobs(HeldBlobs),
    #[prost(message, tag = "10")]
    PostMortem(PostMortem),
    #[prost(message, tag = "11")]
    Queued(Queued),
    #[prost(message, tag = "12")]
    Leased(Leased),
    #[prost(message, tag = "20")]
    NodeResult(NodeResult),
}

/// Opens a session with one device, or asks what there is.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hello {
    #[prost(uint32, tag = "1")]
    pub version_min: u32,
    #[prost(uint32, tag = "2")]
    pub version_max: u32,
    #[prost(string, tag = "3")]
    pub client: String,
    #[prost(string, tag = "4")]
    pub token: String,
    #[prost(string, tag = "5")]
    pub target: String,
    #[prost(uint64, tag = "6")]
    pub deadline_ms: u64,
    #[prost(bool, tag = "7")]
    pub trace: bool,
    #[prost(int32, tag = "8")]
    pub priority: i32,
    #[prost(uint64, tag = "9")]
    pub wait_ms: u64,
}

/// The session is open.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Welcome {
    #[prost(uint32, tag = "1")]
    pub version: u32,
    #[prost(string, tag = "2")]
    pub agent: String,
    #[prost(message, optional, tag = "3")]
    pub device: Option<DeviceInfo>,
    #[prost(message, repeated, tag = "4")]
    pub devices: Vec<Offer>,
    #[prost(message, optional, tag = "5")]
    pub limits: Option<SessionLimits>,
    #[prost(string, repeated, tag = "6")]
    pub capabilities: Vec<String>,
}

/// A device that an agent offers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Offer {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub info: Option<DeviceInfo>,
    #[prost(string, tag = "3")]
    pub reason: String,
    #[prost(uint32, tag = "4")]
    pub sessions: u32,
    #[prost(string, tag = "5")]
    pub agent: String,
    #[prost(uint32, tag = "6")]
    pub busy: u32,
}

/// From a hub, before a Welcome: no device that suits is free.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Queued {
    #[prost(uint32, tag = "1")]
    pub place: u32,
    #[prost(uint32, tag = "2")]
    pub devices: u32,
    #[prost(string, tag = "3")]
    pub trouble: String,
}

/// From a hub, before a Welcome: the device that this session has.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Leased {
    #[prost(string, tag = "1")]
    pub device: String,
    #[prost(string, tag = "2")]
    pub agent: String,
}

/// What one session may do.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SessionLimits {
    #[prost(uint64, tag = "1")]
    pub max_message: u64,
    #[prost(uint64, tag = "2")]
    pub window: u64,
    #[prost(uint64, tag = "3")]
    pub deadline_ms: u64,
    #[prost(uint64, tag = "4")]
    pub idle_ms: u64,
    #[prost(uint64, tag = "5")]
    pub memory: u64,
}

/// Is the agent there? Answered by a Pong at once, also while a request runs.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ping {}

/// The answer to a Ping.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Pong {}

/// Gives up a request. What has not started is answered by a Failed of kind interrupted. What runs is given the grace,
/// then its process ends, and the session with it, by a PostMortem.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Cancel {
    #[prost(uint64, tag = "1")]
    pub request: u64,
    #[prost(uint64, tag = "2")]
    pub grace_ms: u64,
}

/// A request failed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Failed {
    #[prost(enumeration = "ErrorKind", tag = "1")]
    pub kind: i32,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(string, tag = "3")]
    pub hint: String,
    #[prost(message, repeated, tag = "4")]
    pub details: Vec<Detail>,
}

/// What sort of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum ErrorKind {
    Bug = 0,
    InvalidInput = 1,
    Unsupported = 2,
    Io = 3,
    Unavailable = 4,
    Compile = 5,
    OutOfMemory = 6,
    DeviceLost = 7,
    Interrupted = 8,
}

/// A named detail of a failure.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Detail {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

/// Every request up to the number of this message is finished, or has failed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Credit {}

/// The request is finished.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Done {}

/// Some of the bytes asked for.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Data {
    #[prost(bytes = "bytes", tag = "1")]
    pub data: Bytes,
    #[prost(bool, tag = "2")]
    pub last: bool,
}

/// The session's device is gone, and this is how. The agent closes the connection after it; a new one gets a new device.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PostMortem {
    #[prost(enumeration = "Reason", tag = "1")]
    pub reason: i32,
    #[prost(string, tag = "2")]
    pub summary: String,
    #[prost(int32, optional, tag = "3")]
    pub exit_code: Option<i32>,
    #[prost(uint32, tag = "4")]
    pub signal: u32,
    #[prost(uint64, tag = "5")]
    pub request: u64,
    #[prost(string, tag = "6")]
    pub running: String,
    #[prost(message, repeated, tag = "7")]
    pub kernels: Vec<KernelRef>,
    #[prost(string, repeated, tag = "8")]
    pub recent: Vec<String>,
    #[prost(string, tag = "9")]
    pub output: String,
    #[prost(uint64, tag = "10")]
    pub memory: u64,
    #[prost(uint64, tag = "11")]
    pub busy_ms: u64,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Reason {
    Crashed = 0,
    Deadline = 1,
    Cancelled = 2,
    Killed = 3,
    Idle = 4,
    Protocol = 5,
    Shutdown = 6,
}

/// A kernel that ran when a session ended.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KernelRef {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub file: String,
    #[prost(uint32, tag = "3")]
    pub line: u32,
    #[prost(string, tag = "4")]
    pub label: String,
    #[prost(string, tag = "5")]
    pub text: String,
}
