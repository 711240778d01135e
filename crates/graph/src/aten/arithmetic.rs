//! Functions of each element, with PyTorch's promotion of dtypes.
//!
//! ONNX operators take operands of one dtype. So a definition casts operands first, by the rules of
//! <https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc>.

use super::arguments::{Arguments, Number, TensorArgument};
use super::builder::{Builder, Operand, broadcast_shape};
use crate::dtype::DType;
use crate::error::{Error, Result};
use serde_json::json;

/// What a definition gives: outputs by their places.
pub type Defined = Result<Vec<Operand>>;

/// A function of one number with these steps of one operand each.
pub fn unary(builder: &mut Builder, arguments: &Arguments, kinds: &[&str]) -> Defined {
    let mut x = arguments.tensor("self")?;
    for kind in kinds {
        x = builder.unary(kind, json!({}), &x)?;
    }
    Ok(vec![x])
}

/// As [`unary`], of floats alone: PyTorch gives floats for integers as well.
pub fn float_unary(builder: &mut Builder, arguments: &Arguments, kinds: &[&str]) -> Defined {
    // Only checked: the tensor itself is read by `unary`.
    arguments.floats("self")?;
    unary(builder, arguments, kinds)
}

/// A value that is handed on.
pub fn pass_through(builder: &mut Builder, arguments: &Arguments) -> Defined {
    arguments.ignore(&["memory_format", "implicit"]);
    let x = arguments.tensor("self")?;
    Ok(vec![builder.copy_value(&x)?])
}

/// A value in another dtype.
pub fn to_dtype(builder: &mut Builder, arguments: &Arguments) -> Defined {
    arguments.ignore(&["memory_format", "non_blocking", "copy"]);
    let x = arguments.tensor("self")?;
    let dtype = arguments.dtype("dtype")?.unwrap_or(x.dtype);
    let made = builder.cast(&x, dtype)?;
    Ok(vec![builder.copy_value(&made)?])
}

/// The dtype in which two operands are computed, as PyTorch promotes them.
///
/// The category counts first: floats win over integers. Within one, a tensor wins over a number without dimensions.
///
/// # Errors
/// Of kind `Unsupported` for two floats of several widths, and for two integers other than `i32` with `i64` or bool with any.
fn promote_dtype(builder: &Builder, a: &Operand, b: &Operand) -> Result<DType> {
    // PyTorch calls a tensor without dimensions a scalar in promotion.
    let weak = |x: &Operand| x.rank() == 0;
    let (one, other) = (a.dtype, b.dtype);
    Ok(match (one.is_float(), other.is_float()) {
        _ if one == other => one,
        (true, false) => one,
        (false, true) => other,
        _ if weak(a) && !weak(b) => other,
        _ if weak(b) && !weak(a) => one,
        (false, false) if one == DType::Bool => other,
        (false, false) if other == DType::Bool => one,
        (false, false) if [one, other].contains(&DType::I64) && [one, other].contains(&DType::I32) => {
            DType::I64
        }
        // An evaluation in f64 widens what is not rounded.
        (true, true) if builder.float() == DType::F64 => DType::F64,
        _ => return Err(Error::unsupported(format!("operands of {one} and {other}"))),
    })
}

/// A number as an operand beside a tensor, and the dtype that both are computed in.
///
/// A Python number never widens a tensor of its own category.
fn promote_number(builder: &Builder, x: &Operand, number: Number) -> DType {
    match x.dtype {
        dtype if dtype.is_float() => dtype,
        _ if number.float => builder.float(),
        // A Python integer beside booleans.
        DType::Bool => DType::I64,
        dtype => dtype,
    }
}

/// The two operands, of one dtype.
///
/// # Errors
/// If neither is a tensor, or their dtypes have no common one.
fn operands(builder: &mut Builder, arguments: &Arguments, [a, b]: [&str; 2]) -> Result<[Operand; 2]> {
    match (arguments.tensor_argument(a), arguments.tensor_argument(b)) {
        (TensorArgument::Tensor(a), TensorArgument::Tensor(b)) => {
            let dtype = promote_dtype(builder, &a, &b)?;
            Ok([builder.cast(&a, dtype)?, builder.cast(&b, dtype)?])
        }
        (TensorArgument::Tensor(x), TensorArgument::Number(number)) => {
            let dtype = promote_number(builder, &x, number);
            Ok([builder.cast(&x, dtype)?, builder.number(number.value, dtype)?])
        }
        (TensorArgument::Number(number), TensorArgument::Tensor(x)) => {
            let dtype = promote_number(builder, &x, number);
            Ok([builder.number(number.value, dtype)?, builder.cast(&x, dtype)?])
        }
        _ => Err(Error::invalid(format!("needs `{a}` and `{b}`, one of them a tensor"))),
    }
}

/// An operand times a number, where that is not 1.
fn scale_operand(builder: &mut Builder, x: &Operand, factor: f64) -> Result<Operand> {
    if factor == 1.0 {
        return Ok(x.clone());
    }
    let factor = builder.number(factor, x.dtype)?;
    builder.pair("onnx.Mul@14", x, &factor)
}

/// A sum or a difference; `alpha` times the second operand.
pub fn sum(builder: &mut Builder, arguments: &Arguments, kind: &str) -> Defined {
    let alpha = arguments.float("alpha", 1.0)?;
    let [a, b] = operands(builder, arguments, ["self", "other"])?;
    // PyTorch refuses a fractional `alpha` for integers.
    if a.dtype == DType::Bool || (!a.dtype.is_float() && alpha.fract() != 0.0) {
        return Err(Error::unsupported(format!("a sum of {} with `alpha` {alpha}", a.dtype)));
    }
    let b = scale_operand(builder, &b, alpha)?;
    Ok(vec![builder.pair(kind, &a, &b)?])
}

/// `other - alpha · self`.
pub fn reversed_difference(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let alpha = arguments.float("alpha", 1.0)?;
    let [a, b] = operands(builder, arguments, ["self", "other"])?;
    let a = scale_operand(builder, &a, alpha)?;
    Ok(vec![builder.pair("onnx.Sub@14", &b, &a)?])
}

/// An operator of two operands.
pub fn pair(builder: &mut Builder, arguments: &Arguments, kind: &str) -> Defined {
    let [a, b] = operands(builder, arguments, ["self", "other"])?;
    if a.dtype == DType::Bool {
        return Err(Error::unsupported("operands of bool"));
    }
    Ok(vec![builder.pair(kind, &a, &b)?])
}

/// A quotient, of floats also where both operands are integers.
pub fn quotient(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let [a, b] = operands(builder, arguments, ["self", "other"])?;
    // `torch.true_divide` of integers gives the default float.
    let dtype = if a.dtype.is_float() { a.dtype } else { builder.float() };
    let (a, b) = (builder.cast(&a, dtype)?, builder.cast(&b, dtype)?);
    Ok(vec![builder.pair("onnx.Div@14", &a, &b)?])
}

/// A power.
pub fn power(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let [a, b] = operands(builder, arguments, ["self", "exponent"])?;
    if !a.dtype.is_float() {
        return Err(Error::unsupported(format!("a power of {}", a.dtype)));
    }
    Ok(vec![builder.pair("onnx.Pow@15", &a, &b)?])
}

/// A comparison, or its opposite.
pub fn compare(builder: &mut Builder, arguments: &Arguments, kind: &str, opposite: bool) -> Defined {
    let [a, b] = operands(builder, arguments, ["self", "other"])?;
    let ty = (DType::Bool, broadcast_shape(&a.shape, &b.shape)?);
    // Promoted operands are compared, and the result is bool.
    let found = builder.add_operator(kind, json!({}), &[&a, &b], ty)?;
    Ok(vec![if opposite { builder.unary("onnx.Not@1", json!({}), &found)? } else { found }])
}

/// An operator on two tensors of bool.
pub fn logical(builder: &mut Builder, arguments: &Arguments, kind: &str) -> Defined {
    let (a, b) = (arguments.tensor("self")?, arguments.tensor("other")?);
    if a.dtype != DType::Bool || b.dtype != DType::Bool {
        return Err(Error::unsupported(format!("operands of {} and {}", a.dtype, b.dtype)));
    }
    Ok(vec![builder.pair(kind, &a, &b)?])
}

/// The opposite of a tensor of bool.
pub fn not(builder: &mut Builder, arguments: &Arguments) -> Defined {
    match arguments.tensor("self")?.dtype {
        DType::Bool => unary(builder, arguments, &["onnx.Not@1"]),
        dtype => Err(Error::unsupported(format!("the opposite of {dtype}"))),
    }
}

/// Elements of one tensor where a condition holds, else of another.
pub fn choose(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let condition = arguments.tensor("condition")?;
    let [a, b] = operands(builder, arguments, ["self", "other"])?;
    Ok(vec![select_elements(builder, &condition, &a, &b)?])
}

/// `a` where `condition` holds, else `b`, of one dtype; all three broadcast.
///
/// # Errors
/// If the condition is no bool, or the shapes do not broadcast.
pub fn select_elements(
    builder: &mut Builder,
    condition: &Operand,
    a: &Operand,
    b: &Operand,
) -> Result<Operand> {
    let shape = broadcast_shape(&condition.shape, &broadcast_shape(&a.shape, &b.shape)?)?;
    if condition.dtype != DType::Bool {
        return Err(Error::invalid(format!("a condition of {}", condition.dtype)));
    }
    builder.add_operator("onnx.Where@16", json!({}), &[condition, a, b], (a.dtype, shape))
}

/// A number where a mask holds.
pub fn fill_mask(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let (x, mask) = (arguments.tensor("self")?, arguments.tensor("mask")?);
    let value = match arguments.tensor_argument("value") {
        TensorArgument::Number(number) => builder.number(number.value, x.dtype)?,
        // The value takes the dtype of the tensor, as PyTorch's `masked_fill` does.
        TensorArgument::Tensor(value) => builder.cast(&value, x.dtype)?,
        TensorArgument::Absent => {
            let value = arguments.number("value")?.ok_or_else(|| Error::invalid("needs `value`"))?;
            builder.number(value.value, x.dtype)?
        }
    };
    Ok(vec![select_elements(builder, &mask, &value, &x)?])
}

/// Kept between two numbers, either of which may be absent.
pub fn clamp(
    builder: &mut Builder,
    arguments: &Arguments,
    [low, high]: [&'static str; 2],
    defaults: [Option<f64>; 2],
) -> Defined {
    let x = arguments.tensor("self")?;
    let mut bound = |name, default: Option<f64>| -> Result<Option<Operand>> {
        let given = arguments.number(name)?;
        if given.is_some_and(|number| number.float && !x.dtype.is_float()) {
            return Err(Error::unsupported(format!(
                "`{name}` of {} for {}",
                given.map_or(0.0, |n| n.value),
                x.dtype
            )));
        }
        given.map(|number| number.value).or(default).map(|value| builder.number(value, x.dtype)).transpose()
    };
    let (least, most) = (bound(low, defaults[0])?, bound(high, defaults[1])?);
    let ty = (x.dtype, x.shape.clone());
    let inputs = [Some(&x), least.as_ref(), most.as_ref()];
    // An absent bound in the middle keeps its place; at the end it is left out.
    let taken = if most.is_some() { 3 } else { 2 };
    builder.step("onnx.Clip@13", json!({}), &inputs[..taken], &[ty])
}

/// `x · sigmoid(x)`.
pub fn silu(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.floats("self")?;
    let gate = builder.unary("onnx.Sigmoid@13", json!({}), &x)?;
    Ok(vec![builder.pair("onnx.Mul@14", &x, &gate)?])
}

/// `x · tanh(softplus(x))`.
pub fn mish(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.floats("self")?;
    let gate = builder.unary("onnx.Softplus@1", json!({}), &x)?;
    let gate = builder.unary("onnx.Tanh@13", json!({}), &gate)?;
    Ok(vec![builder.pair("onnx.Mul@14", &x, &gate)?])
}

/// `ln(1 + e^(β x)) / β`, and `x` itself where `β x` is above a threshold.
pub fn softplus(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.floats("self")?;
    let (beta, threshold) = (arguments.float("beta", 1.0)?, arguments.float("threshold", 20.0)?);
    let steep = scale_operand(builder, &x, beta)?;
    let soft = builder.unary("onnx.Softplus@1", json!({}), &steep)?;
    let soft = scale_operand(builder, &soft, beta.recip())?;
    let threshold = builder.number(threshold, x.dtype)?;
    let ty = (DType::Bool, x.shape.clone());
    // PyTorch compares `βx`, not `x`, with the threshold.
    let straight = builder.add_operator("onnx.Greater@13", json!({}), &[&steep, &threshold], ty)?;
    Ok(vec![select_elements(builder, &straight, &x, &soft)?])
}

/// The Gaussian error linear unit.
pub fn gelu(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.floats("self")?;
    let approximate = arguments.text("approximate")?.unwrap_or("none");
    if !["none", "tanh"].contains(&approximate) {
        return Err(Error::invalid(format!("`approximate` is `{approximate}`, expected none or tanh")));
    }
    Ok(vec![builder.unary("onnx.Gelu@20", json!({ "approximate": approximate }), &x)?])
}

/// The exponential linear unit.
pub fn elu(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.floats("self")?;
    let alpha = arguments.float("alpha", 1.0)?;
    if arguments.float("scale", 1.0)? != 1.0 || arguments.float("input_scale", 1.0)? != 1.0 {
        return Err(Error::unsupported("`scale` and `input_scale` other than 1"));
    }
    Ok(vec![builder.unary("onnx.Elu@6", json!({ "alpha": alpha }), &x)?])
}

/// The leaky rectifier.
pub fn leaky_relu(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.floats("self")?;
    let alpha = arguments.float("negative_slope", 0.01)?;
    Ok(vec![builder.unary("onnx.LeakyRelu@16", json!({ "alpha": alpha }), &x)?])
}

/// `max(0, min(1, x / 6 + 1 / 2))`.
pub fn hard_sigmoid(builder: &mut Builder, arguments: &Arguments) -> Defined {
    let x = arguments.floats("self")?;
    Ok(vec![builder.unary("onnx.HardSigmoid@6", json!({"alpha": 1.0 / 6.0, "beta": 0.5}), &x)?])
}
