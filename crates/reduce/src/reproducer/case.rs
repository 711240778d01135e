//! `case.json`: what runs and what should come out, as plain data.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tapml_device::BindingKind;
use tapml_exec::PlatformInfo;
use tapml_graph::{DType, Error, Result};

/// The version of `case.json`.
/// It changes when a reader of an old version could not run a new case.
pub(super) const SCHEMA: u32 = 1;

/// `case.json`: everything but the bytes.
///
/// Buffers, kernels and outputs are named by their index in these lists.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    /// See [`SCHEMA`].
    pub(super) schema: u32,
    /// Name of the recorded case.
    pub(super) case: String,
    /// Name of the operator.
    pub(super) op: String,
    /// Attributes of the smallest call.
    pub(super) attributes: serde_json::Value,
    /// Name of the kernel on the platform.
    pub(super) kernel: String,
    /// Where it fails.
    pub(super) found_on: PlatformInfo,
    pub(super) buffers: Vec<Buffer>,
    pub(super) kernels: Vec<Kernel>,
    /// In the order in which they run.
    pub(super) launches: Vec<Dispatch>,
    pub(super) outputs: Vec<Output>,
    /// The real values first.
    pub(super) values: Vec<Values>,
}

/// One buffer. Inputs get their bytes from a set of values, outputs and scratch are filled with a word.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Buffer {
    /// For people: what it is in the call.
    pub(super) name: String,
    /// Bytes, a multiple of 4 and at least 4.
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fill: Option<u32>,
}

/// One kernel, as WebGPU takes it. The text has no `enable` lines, because implementations differ in those that they know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Kernel {
    pub(super) file: String,
    pub(super) entry: String,
    pub(super) constants: BTreeMap<String, f64>,
    pub(super) f16: bool,
    pub(super) subgroups: bool,
    pub(super) bindings: Vec<BindingKind>,
}

/// One launch of a kernel, with all sizes evaluated.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Dispatch {
    pub(super) kernel: usize,
    pub(super) bindings: Vec<Binding>,
    pub(super) groups: [u64; 3],
}

/// A range of a buffer, in bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Binding {
    pub(super) buffer: usize,
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// An output that is compared.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Output {
    pub(super) buffer: usize,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
}

/// One set of input values with what should come out of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Values {
    /// `real` for values of the model, or `simplified`.
    pub name: String,
    pub(super) inputs: Vec<Given>,
    pub(super) expected: Vec<Expected>,
    pub(super) sums: Vec<Sum>,
}

/// The bytes of one input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Given {
    pub(super) buffer: usize,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    pub(super) file: String,
}

/// Files of little-endian `f64`, one for each element.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Expected {
    /// The exact result.
    pub(super) exact: String,
    /// The exact result as the output's type holds it.
    pub(super) rounded: String,
    /// How far each element may be off.
    pub(super) allowed: String,
}

/// See [`SumTest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sum {
    pub(super) output: usize,
    pub(super) criterion: String,
    pub(super) power: u32,
    pub(super) limit: f64,
    pub(super) weights: String,
}

impl Case {
    /// The text of `case.json`.
    pub(super) fn json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).map_err(|e| Error::bug(format!("case.json: {e}")))
    }
}
