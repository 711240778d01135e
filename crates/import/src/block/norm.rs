//! Normalisation layers.

use crate::net::{Net, Path};
use tapml_graph::op::{LayerNorm, RmsNorm};
use tapml_graph::{Result, ValueId};

/// Root-mean-square normalisation of `x: [n, width]` with `weight: [width]`.
pub fn rms_norm(net: &mut Net, at: &Path, x: ValueId, width: u32, eps: f32) -> Result<ValueId> {
    let weight = net.weight(&at.at("weight"), &[width])?;
    net.node(at, RmsNorm { eps }, &[x, weight])
}

/// Normalisation of `x: [n, width]` to mean 0 and variance 1, with `weight: [width]` and `bias: [width]`.
pub fn layer_norm(net: &mut Net, at: &Path, x: ValueId, width: u32, eps: f32) -> Result<ValueId> {
    let weight = net.weight(&at.at("weight"), &[width])?;
    let bias = net.weight(&at.at("bias"), &[width])?;
    net.node(at, LayerNorm { eps }, &[x, weight, bias])
}
