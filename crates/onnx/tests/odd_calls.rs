//! Calls of every elementwise, moving, reducing and indexing operator with inputs and attributes that rarely fit: each gives a
//! result or an error, and none panics.
#![allow(clippy::unwrap_used)]

use serde_json::{Map, Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{Bytes, DType, ErrorKind, Tensor};

const OPERATORS: &str = "Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh BitCast BitShift BitwiseAnd BitwiseNot \
    BitwiseOr BitwiseXor Cast CastLike Ceil Celu Clip Compress Concat ConstantOfShape Cos Cosh CumProd CumSum \
    DepthToSpace DequantizeLinear Det Div Dropout DynamicQuantizeLinear Elu Equal Erf Exp Expand EyeLike Flatten Floor \
    Gather GatherElements GatherND Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu \
    Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg NonZero Not OneHot Or PRelu Pad Pow QuantizeLinear Range \
    Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum \
    ReduceSumSquare Relu Reshape ReverseSequence Round Scatter ScatterElements ScatterND Selu Shape Shrink Sigmoid Sign \
    Sin Sinh Size Slice Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Swish Tan Tanh TensorScatter \
    ThresholdedRelu Tile TopK Transpose Trilu Unique Unsqueeze Where Xor";

const INTEGERS: &[i64] = &[0, 1, 2, 3, -1, -2, 5, -7, 1 << 40, i64::MAX, i64::MIN];
const FLOATS: &[f64] = &[0.0, -0.0, 0.5, -1.5, 2.5, 1e30, -1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
const SHAPES: &[&[usize]] = &[
    &[],
    &[0],
    &[1],
    &[2],
    &[3],
    &[2, 3],
    &[3, 3],
    &[2, 0],
    &[1, 4, 2],
    &[2, 4, 2, 2],
    &[1 << 40, 0],
    &[0, 1 << 31, 1 << 31],
    &[0, 1 << 40, 1 << 40],
];

/// Numbers that are the same in each run: splitmix64.
struct Draw(u64);

impl Draw {
    fn draw_below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % count as u64) as usize
    }

    fn draw_one<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.draw_below(list.len())]
    }

    /// Mostly small numbers, so that some calls fit.
    fn integer(&mut self) -> i64 {
        let known = if self.draw_below(8) == 0 { INTEGERS.len() } else { 8 };
        self.draw_one(&INTEGERS[..known])
    }

    fn shape(&mut self) -> Vec<usize> {
        let known = if self.draw_below(8) == 0 { SHAPES.len() } else { 10 };
        self.draw_one(&SHAPES[..known]).to_vec()
    }

    fn tensor(&mut self, dtype: DType, shape: Vec<usize>) -> Tensor {
        let count = shape.iter().fold(1usize, |count, &size| count.saturating_mul(size));
        // The sizes before a zero may have a product beyond the address space.
        let count = if shape.contains(&0) { 0 } else { count };
        if count == 0 {
            let empty = Tensor::new(dtype, shape, Bytes::new(Vec::<u8>::new()));
            return empty
                .unwrap_or_else(|_| Tensor::new(dtype, vec![0], Bytes::new(Vec::<u8>::new())).unwrap());
        }
        if dtype.is_float() {
            let values: Vec<f64> = (0..count).map(|_| self.draw_one(FLOATS)).collect();
            return Tensor::from_f64(dtype, shape, &values).unwrap();
        }
        let values: Vec<i64> = (0..count).map(|_| self.integer()).collect();
        Tensor::from_i64(dtype, shape, &values).unwrap()
    }

    fn attributes(&mut self) -> Map<String, Value> {
        let mut attributes = Map::new();
        let names = [
            "axis",
            "axes",
            "keepdims",
            "to",
            "mode",
            "blocksize",
            "perm",
            "starts",
            "ends",
            "pads",
            "split",
            "k",
            "direction",
            "reduction",
            "batch_dims",
            "block_size",
            "start",
            "end",
            "num_outputs",
            "fmod",
            "dtype",
            "select_last_index",
            "largest",
            "sorted",
            "upper",
            "batch_axis",
            "time_axis",
            "value",
            "shape",
        ];
        for _ in 0..self.draw_below(9) {
            let name = self.draw_one(&names);
            let list: Vec<i64> = (0..self.draw_below(4)).map(|_| self.integer()).collect();
            let value = match name {
                "axes" | "perm" | "starts" | "ends" | "pads" | "split" | "shape" => json!({"ints": list}),
                "mode" => {
                    json!(self.draw_one(&["constant", "edge", "reflect", "wrap", "circular", "DCR", "CRD"]))
                }
                "direction" => json!(self.draw_one(&["LEFT", "RIGHT"])),
                "reduction" => json!(self.draw_one(&["none", "add", "mul", "max", "min"])),
                "to" | "dtype" => json!(self.draw_below(18)),
                "value" => json!({"tensor": {"dtype": "i64", "shape": [1], "data": [self.integer()]}}),
                _ => json!(self.integer()),
            };
            attributes.insert(name.into(), value);
        }
        attributes
    }
}

/// Whether a call gives a result. Attributes that the operator does not have are taken away until none is left.
fn fits(
    kind: &str,
    attributes: &mut Map<String, Value>,
    inputs: &[Option<Tensor>],
    declared: &[DeclaredType],
    wide: bool,
) -> bool {
    loop {
        let text = format!("{kind} {attributes:?} {inputs:?}");
        let places = inputs.iter().map(Option::is_some).collect();
        let op = Foreign::new(kind, attributes.clone(), places, declared.to_vec()).unwrap();
        let run = catch_unwind(AssertUnwindSafe(|| tapml_onnx::evaluate(&op, inputs, wide)));
        let error = match run.unwrap_or_else(|_| panic!("a panic of {text}")) {
            Ok(outputs) => {
                assert_eq!(outputs.len(), declared.len(), "{text}");
                return true;
            }
            Err(error) => error,
        };
        assert!(error.kind() != ErrorKind::Bug, "{text}: {error}");
        let surplus = error
            .message()
            .split_once("the attribute `")
            .and_then(|(_, rest)| rest.split_once("` is not served"));
        match surplus {
            Some((name, _)) => assert!(attributes.remove(name).is_some(), "{text}: {error}"),
            None => return false,
        }
    }
}

#[test]
fn odd_calls_end_in_results_or_errors() {
    let mut draw = Draw(7);
    let mut unreached = Vec::new();
    for name in OPERATORS.split_whitespace() {
        assert!(tapml_onnx::names().any(|known| known == name), "{name} has no evaluation");
        let mut right = 0;
        for _ in 0..1000 {
            let version = draw.draw_one(&[1, 5, 6, 7, 9, 10, 11, 12, 13, 18, 24]);
            let own = draw.draw_one(&DType::ALL);
            let shape = draw.shape();
            let mut inputs = vec![Some(draw.tensor(own, shape.clone()))];
            for _ in 0..draw.draw_below(4) {
                let dtype = draw.draw_one(&[own, own, own, DType::I64, DType::I64, DType::Bool, DType::F32]);
                let shape = if draw.draw_below(2) == 0 { shape.clone() } else { draw.shape() };
                let is_there = draw.draw_below(6) > 0;
                inputs.push(is_there.then(|| draw.tensor(dtype, shape)));
            }
            let mut attributes = draw.attributes();
            let declared = vec![DeclaredType::Unknown; 1 + draw.draw_below(3)];
            for wide in [false, true] {
                right += usize::from(fits(
                    &format!("onnx.{name}@{version}"),
                    &mut attributes,
                    &inputs,
                    &declared,
                    wide,
                ));
            }
        }
        // An operator that no call reaches would not be tested. `DepthToSpace` wants four sizes that fit an attribute.
        if right == 0 && name != "DepthToSpace" {
            unreached.push(name);
        }
        println!("{name}: {right} of 2000 calls fit");
    }
    assert!(unreached.is_empty(), "no call fits {unreached:?}");
}
