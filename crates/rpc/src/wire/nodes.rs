//! The messages of devices that run operators instead of kernels, as `proto/tapml.proto` declares and explains them; a test
//! holds both together.
#![allow(missing_docs, reason = "fields are explained in the schema")]

use super::commands::Symbol;
use bytes::Bytes;

/// An operator that a device runs itself.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ServedOp {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, repeated, tag = "2")]
    pub dtypes: Vec<String>,
    #[prost(string, tag = "3")]
    pub accumulate: String,
    #[prost(string, tag = "4")]
    pub version: String,
}

/// Elements in row-major order, little-endian; or a tensor that the agent holds.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Tensor {
    #[prost(uint32, tag = "1")]
    pub handle: u32,
    #[prost(string, tag = "2")]
    pub dtype: String,
    #[prost(uint64, repeated, tag = "3")]
    pub shape: Vec<u64>,
    #[prost(bytes = "bytes", tag = "4")]
    pub data: Bytes,
    #[prost(bool, tag = "5")]
    pub absent: bool,
    #[prost(bool, tag = "6")]
    pub constant: bool,
}

/// Gives the agent a tensor to hold under a handle, such as a weight.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PutTensor {
    #[prost(message, optional, tag = "1")]
    pub tensor: Option<Tensor>,
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// Frees a held tensor; no error if there is none.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DropTensor {
    #[prost(uint32, tag = "1")]
    pub handle: u32,
}

/// Runs one node: outputs = op(inputs).
#[derive(Clone, PartialEq, prost::Message)]
pub struct CallNode {
    #[prost(string, tag = "1")]
    pub node: String,
    #[prost(string, tag = "2")]
    pub op: String,
    #[prost(string, tag = "3")]
    pub attributes: String,
    #[prost(message, repeated, tag = "4")]
    pub symbols: Vec<Symbol>,
    #[prost(message, repeated, tag = "5")]
    pub inputs: Vec<Tensor>,
    #[prost(uint32, repeated, tag = "6")]
    pub keep: Vec<u32>,
    #[prost(message, repeated, tag = "7")]
    pub outputs: Vec<Tensor>,
}

/// Runs several nodes as one model.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CallGraph {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, repeated, tag = "2")]
    pub nodes: Vec<GraphNode>,
    #[prost(string, repeated, tag = "3")]
    pub inputs: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    pub values: Vec<Tensor>,
    #[prost(string, repeated, tag = "5")]
    pub outputs: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub types: Vec<Tensor>,
    #[prost(uint32, repeated, tag = "7")]
    pub keep: Vec<u32>,
    #[prost(message, repeated, tag = "8")]
    pub symbols: Vec<Symbol>,
}

/// One node of a [`CallGraph`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct GraphNode {
    #[prost(string, tag = "1")]
    pub node: String,
    #[prost(string, tag = "2")]
    pub op: String,
    #[prost(string, tag = "3")]
    pub attributes: String,
    #[prost(string, repeated, tag = "4")]
    pub inputs: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub outputs: Vec<String>,
}

/// What a node gave.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeResult {
    #[prost(message, repeated, tag = "1")]
    pub outputs: Vec<Tensor>,
    #[prost(bytes = "bytes", tag = "2")]
    pub data: Bytes,
    #[prost(bool, tag = "3")]
    pub last: bool,
}
