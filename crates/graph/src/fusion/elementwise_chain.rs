//! `elementwise_chain`: nodes of the ONNX standard that compute one element after the other, where nothing in front of them
//! takes them as its epilogue.
//!
//! It stands last in the list of fusions, so that epilogues of products and convolutions take their nodes first.

use super::epilogue::{ELEMENTWISE, sites};
use super::rule::{Fusion, Site};
use super::samples::{FusedSample, constant_type};
use super::uses::Uses;
use crate::dtype::DType;
use crate::op::{Fill, Sample};

/// The row of [`super::FUSIONS`].
pub const FUSION: Fusion = Fusion { name: "elementwise_chain", find, samples };

fn find(uses: &Uses<'_>) -> Vec<Site> {
    sites(uses, &ELEMENTWISE)
}

/// Chains that use a value twice, constants without axes, and constants for each channel.
fn samples() -> Vec<Sample> {
    let one = Fill::Normal(1.0);
    let swish = |name: &str, dtype, shape: &[u64]| {
        let mut sample = FusedSample::new(name, &FUSION);
        let ty = constant_type(dtype, shape);
        let x = sample.input(ty.clone(), one);
        let [three, low, high] =
            ["3", "0", "6"].map(|text| sample.input(constant_type(dtype, &[]), Fill::Values(text)));
        let sum = sample.foreign("onnx.Add@14", "{}", &[x, three], &ty);
        let clipped = sample.foreign("onnx.Clip@13", "{}", &[sum, low, high], &ty);
        let product = sample.foreign("onnx.Mul@14", "{}", &[x, clipped], &ty);
        let share = sample.foreign("onnx.Div@14", "{}", &[product, high], &ty);
        sample.output(share);
        sample.finish(1, 0)
    };
    let channels = || {
        let mut sample = FusedSample::new("a factor and a sum for each channel", &FUSION);
        let ty = constant_type(DType::F32, &[2, 5, 3, 7]);
        let x = sample.input(ty.clone(), one);
        let [scale, shift] =
            [[1, 5, 1, 1], [1, 5, 1, 1]].map(|shape| sample.input(constant_type(DType::F32, &shape), one));
        let product = sample.foreign("onnx.Mul@14", "{}", &[scale, x], &ty);
        let sum = sample.foreign("onnx.Add@14", "{}", &[product, shift], &ty);
        let tanh = sample.foreign("onnx.Tanh@13", "{}", &[sum], &ty);
        sample.output(tanh);
        sample.finish(1, 0)
    };
    vec![
        swish("a hard swish in parts", DType::F32, &[3, 41]),
        swish("a hard swish in parts, f16", DType::F16, &[1, 1030]),
        channels(),
    ]
}
