//! `conv_epilogue`: a convolution of the ONNX standard and what becomes of its result element by element: a normalisation by
//! constants, an activation, the sum with a residual.

use super::epilogue::sites;
use super::rule::{Fusion, Site};
use super::samples::{FusedSample, constant_type};
use super::uses::Uses;
use crate::dtype::DType;
use crate::graph::{TensorType, ValueId};
use crate::op::{Fill, Sample};

/// The row of [`super::FUSIONS`].
pub const FUSION: Fusion = Fusion { name: "conv_epilogue", find, samples };

/// The places that [`sites`] finds behind convolutions.
fn find(uses: &Uses<'_>) -> Vec<Site> {
    sites(uses, &["Conv"])
}

/// A convolution with its result.
struct Convolved {
    /// The graph so far.
    sample: FusedSample,
    /// The last value, which the next node takes.
    y: ValueId,
    /// Its type, which no epilogue changes.
    ty: TensorType,
}

impl Convolved {
    /// Of `x` by `w`, with a bias where `b` says so.
    fn new(name: &str, dtype: DType, [x, w, y]: [&[u64]; 3], bias: bool, attributes: &str) -> Convolved {
        let mut sample = FusedSample::new(name, &FUSION);
        let mut given = vec![
            sample.input(constant_type(dtype, x), Fill::Normal(1.0)),
            sample.input(constant_type(dtype, w), Fill::Normal(0.3)),
        ];
        if bias {
            given.push(sample.input(constant_type(dtype, &w[..1]), Fill::Normal(1.0)));
        }
        let ty = constant_type(dtype, y);
        let y = sample.foreign("onnx.Conv@11", attributes, &given, &ty);
        Convolved { sample, y, ty }
    }

    /// Another node on the result and further inputs.
    fn with_node(mut self, kind: &str, attributes: &str, others: &[(&[u64], Fill)]) -> Convolved {
        let dtype = self.ty.dtype;
        let input = |(shape, fill): &(&[u64], Fill)| self.sample.input(constant_type(dtype, shape), *fill);
        let given: Vec<ValueId> = std::iter::once(self.y).chain(others.iter().map(input)).collect();
        self.y = self.sample.foreign(kind, attributes, &given, &self.ty);
        self
    }

    /// The result times its sigmoid.
    fn silu(mut self) -> Convolved {
        let share = self.sample.foreign("onnx.Sigmoid@13", "{}", &[self.y], &self.ty);
        self.y = self.sample.foreign("onnx.Mul@14", "{}", &[self.y, share], &self.ty);
        self
    }

    /// Normalised by one constant of each kind for each of these channels.
    fn with_batch_norm(self, channels: u64) -> Convolved {
        // Scale and variance are positive, as in a trained model: the root of the variance is taken.
        let (one, positive) = (Fill::Normal(1.0), Fill::Around(2.0, 0.3));
        let channels = [channels];
        let given: [(&[u64], Fill); 4] =
            [(&channels, positive), (&channels, one), (&channels, one), (&channels, positive)];
        self.with_node("onnx.BatchNormalization@15", r#"{"epsilon":1e-05}"#, &given)
    }

    /// The sample, with the last value as its output.
    fn finish(mut self) -> Sample {
        self.sample.output(self.y);
        self.sample.finish(1, 0)
    }
}

/// Activations by attributes and in parts, normalisations, residuals, and one to three spatial axes.
fn samples() -> Vec<Sample> {
    const SAME: &str = r#"{"kernel_shape":[3,3],"pads":[1,1,1,1]}"#;
    let (f32, f16) = (DType::F32, DType::F16);
    let plain = |name: &str, dtype| {
        Convolved::new(name, dtype, [&[1, 3, 9, 10], &[5, 3, 3, 3], &[1, 5, 9, 10]], true, SAME)
    };
    let one = Fill::Normal(1.0);
    // Padding that differs between the sides, and strides of two.
    let depthwise = r#"{"group":6,"kernel_shape":[3,3],"strides":[2,2],"pads":[0,1,1,0]}"#;
    // ReLU6 as exporters write it, with bounds as inputs.
    let six: [(&[u64], Fill); 2] = [(&[], Fill::Values("0")), (&[], Fill::Values("6"))];
    let hard_swish =
        plain("a hard swish in parts", f32).with_node("onnx.Add@14", "{}", &[(&[1], Fill::Values("3"))]);
    vec![
        plain("relu", f32).with_node("onnx.Relu@14", "{}", &[]).finish(),
        plain("silu", f32).silu().finish(),
        plain("silu, f16", f16).silu().finish(),
        plain("a leaky relu", f32).with_node("onnx.LeakyRelu@16", r#"{"alpha":0.1}"#, &[]).finish(),
        plain("clip by attributes", f32).with_node("onnx.Clip@6", r#"{"max":1.5,"min":-0.5}"#, &[]).finish(),
        plain("a hard sigmoid", f32).with_node("onnx.HardSigmoid@6", r#"{"alpha":0.17}"#, &[]).finish(),
        plain("a hard swish", f32).with_node("onnx.HardSwish@14", "{}", &[]).finish(),
        plain("normalised, relu", f32).with_batch_norm(5).with_node("onnx.Relu@14", "{}", &[]).finish(),
        Convolved::new("depthwise", f32, [&[2, 6, 7, 8], &[6, 1, 3, 3], &[2, 6, 3, 4]], false, depthwise)
            .with_batch_norm(6)
            .with_node("onnx.HardSwish@14", "{}", &[])
            .finish(),
        Convolved::new(
            "1 × 1, in groups",
            f32,
            [&[1, 8, 6, 5], &[12, 4, 1, 1], &[1, 12, 6, 5]],
            true,
            r#"{"group":2}"#,
        )
        .with_node("onnx.Clip@13", "{}", &six)
        .finish(),
        Convolved::new(
            "1 × 1, many channels",
            f32,
            [&[1, 20, 9, 9], &[40, 20, 1, 1], &[1, 40, 9, 9]],
            true,
            "{}",
        )
        .silu()
        .finish(),
        hard_swish
            .with_node("onnx.Clip@13", "{}", &six)
            .with_node("onnx.Div@14", "{}", &[(&[1], Fill::Values("6"))])
            .finish(),
        plain("a residual, relu", f32)
            .with_node("onnx.Add@14", "{}", &[(&[1, 5, 9, 10], one)])
            .with_node("onnx.Relu@14", "{}", &[])
            .finish(),
        plain("a factor for each channel", f16)
            .with_node("onnx.Mul@14", "{}", &[(&[1, 5, 1, 1], one)])
            .with_node("onnx.Add@14", "{}", &[(&[5, 1, 1], one)])
            .finish(),
        Convolved::new(
            "1-D",
            f32,
            [&[1, 4, 33], &[6, 4, 5], &[1, 6, 15]],
            true,
            r#"{"dilations":[1],"strides":[2]}"#,
        )
        .silu()
        .finish(),
        Convolved::new("3-D", f32, [&[1, 2, 4, 5, 6], &[3, 2, 2, 2, 2], &[1, 3, 3, 4, 5]], true, "{}")
            .with_node("onnx.Tanh@13", "{}", &[])
            .finish(),
    ]
}
