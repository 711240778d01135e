//! Calls of SiLU, and kernels of it that do something else with an element.

use super::noise;
use std::path::Path;
use tapml_exec::{Call, Overrides};
use tapml_graph::op::Silu;
use tapml_graph::{DType, Dim, Symbol, Symbols, Tensor, TensorType};

/// A call of three rows.
pub fn silu(node: &str, seed: u64) -> Call {
    let ty = TensorType::new(DType::F32, [Dim::symbol(Symbol::N), Dim::from(40u64)]);
    Call {
        node: node.into(),
        op: Silu {}.into(),
        symbols: Symbols::np(3, 0),
        inputs: vec![Tensor::from_f32(vec![3, 40], noise(seed, 120)).unwrap()],
        input_types: vec![ty.clone()],
        weights: vec![None],
        output_types: vec![ty],
    }
}

/// A kernel that does this for each element `at`, of which there are `count`.
pub fn silu_kernel(each: &str) -> Overrides {
    let text = "
override K: u32;
@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read_write> y: array<act>;
@group(0) @binding(2) var<uniform> symbols: Symbols;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * K;
    for (var i = 0u; i < 4u; i++) {
        let at = group.x * 1024u + i * 256u + lane;
        EACH
    }
}
";
    let mut overrides = Overrides::default();
    overrides.add_text("silu", Path::new("silu.wgsl"), &text.replace("EACH", each)).unwrap();
    overrides
}
