//! Normalisation layers.

use crate::net::{Net, Path};
use tapml_graph::op::RmsNorm;
use tapml_graph::{Result, ValueId};

/// Root-mean-square normalisation of `x: [n, width]` with `weight: [width]`.
pub fn rms_norm(net: &mut Net, at: &Path, x: ValueId, width: u32, eps: f32) -> Result<ValueId> {
    let weight = net.weight(&at.at("weight"), &[width])?;
    net.node(at, RmsNorm { eps }, &[x, weight])
}
