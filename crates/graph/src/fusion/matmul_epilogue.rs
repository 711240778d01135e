//! `matmul_epilogue`: a product of matrices of the ONNX standard and what becomes of its result element by element: a bias, an
//! activation, the sum with a residual.

use super::epilogue::sites;
use super::rule::{Fusion, Site};
use super::samples::{FusedSample, constant_type};
use super::uses::Uses;
use crate::dtype::DType;
use crate::op::{Fill, Sample};

/// The row of [`super::FUSIONS`].
pub const FUSION: Fusion = Fusion { name: "matmul_epilogue", find, samples };

/// The places that [`sites`] finds behind products of matrices.
fn find(uses: &Uses<'_>) -> Vec<Site> {
    sites(uses, &["MatMul", "Gemm"])
}

/// Batches, a bias, a residual, and an activation of several nodes.
fn samples() -> Vec<Sample> {
    let one = Fill::Normal(1.0);
    let matmul = |name: &str, dtype, [a, b, y]: [&[u64]; 3], activation: &str| {
        let mut sample = FusedSample::new(name, &FUSION);
        let ty = constant_type(dtype, y);
        let given = [
            sample.input(constant_type(dtype, a), one),
            sample.input(constant_type(dtype, b), Fill::Normal(0.2)),
        ];
        let product = sample.foreign("onnx.MatMul@13", "{}", &given, &ty);
        // The bias stands in front, as some exporters write it.
        let bias = sample.input(constant_type(dtype, &b[b.len() - 1..]), one);
        let sum = sample.foreign("onnx.Add@14", "{}", &[bias, product], &ty);
        let activated = sample.foreign(activation, "{}", &[sum], &ty);
        sample.output(activated);
        sample.finish(1, 0)
    };
    let residual = || {
        let mut sample = FusedSample::new("gemm, relu, a residual", &FUSION);
        let ty = constant_type(DType::F32, &[18, 33]);
        let given = [[18, 20], [33, 20]].map(|shape| sample.input(constant_type(DType::F32, &shape), one));
        let product = sample.foreign("onnx.Gemm@13", r#"{"alpha":0.5,"transB":1}"#, &given, &ty);
        let relu = sample.foreign("onnx.Relu@14", "{}", &[product], &ty);
        let other = sample.input(ty.clone(), one);
        let sum = sample.foreign("onnx.Add@14", "{}", &[relu, other], &ty);
        sample.output(sum);
        sample.finish(1, 0)
    };
    // x / 2 (1 + erf(x / √2)), as exporters write it.
    let gelu = || {
        let mut sample = FusedSample::new("a gelu in parts", &FUSION);
        let ty = constant_type(DType::F32, &[2, 7, 24]);
        let given = [constant_type(DType::F32, &[2, 7, 16]), constant_type(DType::F32, &[16, 24])]
            .map(|ty| sample.input(ty, one));
        let product = sample.foreign("onnx.MatMul@13", "{}", &given, &ty);
        let mut number = |text| sample.input(constant_type(DType::F32, &[]), Fill::Values(text));
        let (root, half, whole) = (number("1.4142135"), number("0.5"), number("1"));
        let scaled = sample.foreign("onnx.Div@14", "{}", &[product, root], &ty);
        let erf = sample.foreign("onnx.Erf@13", "{}", &[scaled], &ty);
        let share = sample.foreign("onnx.Add@14", "{}", &[erf, whole], &ty);
        let times = sample.foreign("onnx.Mul@14", "{}", &[product, share], &ty);
        let halved = sample.foreign("onnx.Mul@14", "{}", &[times, half], &ty);
        sample.output(halved);
        sample.finish(1, 0)
    };
    vec![
        matmul("a bias, relu", DType::F32, [&[9, 33], &[33, 17], &[9, 17]], "onnx.Relu@14"),
        matmul("batches, sigmoid, f16", DType::F16, [&[3, 5, 20], &[20, 18], &[3, 5, 18]], "onnx.Sigmoid@13"),
        residual(),
        gelu(),
    ]
}
