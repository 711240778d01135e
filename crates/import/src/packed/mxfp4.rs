//! The layout of gpt-oss checkpoints: `NAME_blocks: u8[…, o, k/32, 16]` holds 32 elements of e2m1 in 16 bytes, the first of
//! two in the low bits, and `NAME_scales: u8[…, o, k/32]` the exponents of their scales (e8m0). Words are these bytes.
//!
//! Source: the OCP Microscaling Formats (MX) Specification, version 1.0.

use super::parts::{Make, Parts, words_of};
use crate::weights::Weights;
use tapml_graph::{DType, Error, Packing, Result};

/// The tensor with the elements of a weight.
pub(super) fn blocks(name: &str) -> String {
    format!("{name}_blocks")
}

/// The tensors of a weight.
pub(super) fn tensors(name: &str) -> [String; 2] {
    [blocks(name), format!("{name}_scales")]
}

/// How a weight of these sizes is packed, and what makes its parts.
pub(super) fn weight(weights: &Weights, names: &[String], sizes: &[usize]) -> Result<(Packing, Make)> {
    let packing = Packing::MXFP4;
    packing.sections(sizes)?;
    let ([name], [rows @ .., k]) = (names, sizes) else {
        return Err(Error::unsupported("a weight in MXFP4 that is put together from several"));
    };
    let groups = k / packing.group as usize;
    let [elements, scales] = tensors(name);
    let elements = weights.exact(&elements, DType::U8, &[rows, &[groups, 16]].concat())?;
    let scales = weights.exact(&scales, DType::U8, &[rows, &[groups]].concat())?;
    let make = move || {
        // 255 is the one NaN of e8m0. It is looked for late, because the scales are mapped.
        if let Some(at) = scales.bytes().iter().position(|&byte| byte == 255) {
            return Err(Error::invalid(format!("scale {at} is NaN: the checkpoint is damaged")));
        }
        Ok(Parts { words: words_of(&elements), scales: scales.bytes().to_vec(), zeros: Vec::new() })
    };
    Ok((packing, Box::new(make)))
}
