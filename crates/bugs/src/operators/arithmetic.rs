//! Wrong signs, operands, functions and precision.
//!
//! Places are expressions of floats, as the source was typed. Each edit is valid text; whether it compiles is checked later.

use super::kernel::{FoundEdit, MutatedKernel};
use crate::source::{Binary, FloatSum, NumberClass};
use naga::BinaryOperator as Op;

/// Float expressions of these operators.
fn floats<'a>(kernel: &'a MutatedKernel<'_>, ops: &'a [Op]) -> impl Iterator<Item = &'a Binary> {
    kernel.source.binaries.iter().filter(move |b| b.class == NumberClass::Float && ops.contains(&b.op))
}

/// Plus for minus and the reverse.
pub fn wrong_sign(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let found = floats(kernel, &[Op::Add, Op::Subtract]);
    found.map(|b| kernel.text(b.sign.clone(), if b.op == Op::Add { "-" } else { "+" })).collect()
}

/// `b - a` for `a - b`, `b / a` for `a / b`.
pub fn swapped_operands(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let found = floats(kernel, &[Op::Subtract, Op::Divide]);
    found
        .map(|b| {
            let (left, sign, right) =
                (kernel.text_at(&b.left), kernel.text_at(&b.sign), kernel.text_at(&b.right));
            kernel.text(b.whole.clone(), format!("({right}) {sign} ({left})"))
        })
        .collect()
}

/// `a` for `a * b` and for `a / b`.
pub fn dropped_factor(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    floats(kernel, &[Op::Multiply, Op::Divide])
        .map(|b| kernel.text(b.whole.clone(), kernel.text_at(&b.left)))
        .collect()
}

/// `a` for `a + b` and for `a - b`.
pub fn dropped_term(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    floats(kernel, &[Op::Add, Op::Subtract])
        .map(|b| kernel.text(b.whole.clone(), kernel.text_at(&b.left)))
        .collect()
}

/// Calls of `name` go to `new`, whose text is appended.
/// The definition of `name` itself is left as it is.
fn rename_calls(kernel: &MutatedKernel<'_>, name: &str, new: &str, text: &str) -> Vec<FoundEdit> {
    let own = format!("fn {name}");
    let is_call = |at: usize| !kernel.source.code[..at + name.len()].ends_with(&own);
    let calls = kernel.source.find(name).filter(|&at| is_call(at));
    calls.map(|at| kernel.text_with(at..at + name.len(), new, text)).collect()
}

/// `(1 + x/256)^256`, which is 2 % wrong at -3.
/// It stands for the limit that defines the exponential, cut at 2^8 factors.
pub fn rough_exp(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let text = "
fn exp_rough(x: f32) -> f32 {
    var p = max(fma(x, 0.00390625, 1.0), 0.0);
    for (var i = 0u; i < 8u; i++) { p *= p; }
    return p;
}
";
    if kernel.source.is_cuda() {
        let rough = |unit: &str| {
            format!(
                "[](float x) {{ float p = fmaxf(fmaf({unit} * x, 0.00390625f, 1.0f), 0.0f); \
                 for (int i = 0; i < 8; i++) p *= p; return p; }}"
            )
        };
        let [two, e] = [("exp2_", rough("0.6931472f")), ("expf", rough("1.0f"))];
        return [rename_calls(kernel, two.0, &two.1, ""), rename_calls(kernel, e.0, &e.1, "")].concat();
    }
    rename_calls(kernel, "exp_accurate", "exp_rough", text)
}

/// An exponential by its inverse, which is not finite for very negative arguments, as that of some drivers.
pub fn overflowing_exp(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let text = "
fn exp_overflowing(x: f32) -> f32 {
    let up = exp_accurate(-x);
    return up / (up * up);
}
";
    if kernel.source.is_cuda() {
        let inverse =
            |name: &str| format!("[](float x) {{ const float up = {name}(-x); return up / (up * up); }}");
        return ["exp2_", "expf"].map(|name| rename_calls(kernel, name, &inverse(name), "")).concat();
    }
    rename_calls(kernel, "exp_accurate", "exp_overflowing", text)
}

/// tanh by `(e^2x - 1) / (e^2x + 1)`, which is NaN for x beyond 44 and loses bits near 0.
pub fn overflowing_tanh(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let text = "
fn tanh_overflowing(x: f32) -> f32 {
    let e = exp_accurate(2.0 * x);
    return (e - 1.0) / (e + 1.0);
}
";
    rename_calls(kernel, "tanh_accurate", "tanh_overflowing", text)
}

/// The inverse square root by halving the exponent's bits and one step of Newton's method: up to 0.18 % wrong.
/// The constant is that of the known trick for f32; one step leaves the error that is told above.
pub fn rough_root(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let text = "
fn root_rough(v: f32) -> f32 {
    let r = bitcast<f32>(0x5f3759dfu - (bitcast<u32>(v) >> 1u));
    return r * fma(-0.5 * v * r, r, 1.5);
}
";
    if kernel.source.is_cuda() {
        let rough = "[](float v) { const float r = __uint_as_float(0x5f3759dfu - (__float_as_uint(v) >> 1)); \
                     return r * fmaf(-0.5f * v * r, r, 1.5f); }";
        return rename_calls(kernel, "rsqrtf", rough, "");
    }
    rename_calls(kernel, "inverse_root", "root_rough", text)
}

/// The statement and what rounds its variable behind it, as one statement.
fn round_variable(kernel: &MutatedKernel<'_>, sum: &FloatSum, value: &str) -> FoundEdit {
    let (statement, target) = (kernel.text_at(&sum.statement), kernel.text_at(&sum.target));
    let both = format!("{statement} {target} = {value};");
    // The statement may be the whole body of a loop without braces.
    let block = if kernel.source.is_cuda() { format!("{{ {both} }}") } else { both };
    kernel.text(sum.statement.clone(), block)
}

/// Partial sums rounded to f16.
pub fn f16_sum(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let of = |sum: &FloatSum| {
        let target = kernel.text_at(&sum.target);
        let value = if kernel.source.is_cuda() {
            format!("from_half(to_half({target}))")
        } else {
            format!("quantizeToF16({target})")
        };
        round_variable(kernel, sum, &value)
    };
    kernel.source.sums.iter().map(of).collect()
}

/// Partial sums cut to bf16.
pub fn bf16_sum(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let cut = |sum: &FloatSum| {
        let target = kernel.text_at(&sum.target);
        let cut = |ty: &str, words: &str, mask: &str| {
            round_variable(kernel, sum, &format!("bitcast<{ty}>(bitcast<{words}>({target}) & {mask})"))
        };
        if kernel.source.is_cuda() {
            let value = format!("__uint_as_float(__float_as_uint({target}) & 0xffff0000u)");
            return vec![round_variable(kernel, sum, &value)];
        }
        // One of the two has the right type; the other does not compile and is dropped.
        vec![cut("f32", "u32", "0xffff0000u"), cut("vec4<f32>", "vec4<u32>", "vec4<u32>(0xffff0000u)")]
    };
    kernel.source.sums.iter().flat_map(cut).collect()
}

/// Sums that forget what was there, and sums that leave out what comes.
pub fn accumulation(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let of = |sum: &FloatSum| {
        let added = sum.added.as_ref().map(|added| {
            kernel.text(
                sum.statement.clone(),
                format!("{} = {};", kernel.text_at(&sum.target), kernel.text_at(added)),
            )
        });
        let none = if kernel.source.is_cuda() { ";" } else { "" };
        [added, Some(kernel.text(sum.statement.clone(), none))].into_iter().flatten()
    };
    kernel.source.sums.iter().flat_map(of).collect()
}

/// Loaded values lose what stands behind the point: a conversion to an integer and back.
pub fn through_integer(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    if kernel.source.is_cuda() {
        return rename_calls(kernel, "from_half", "(float)(int)from_half", "");
    }
    let mut found = Vec::new();
    for at in kernel.source.find("f32(") {
        let open = at + 3;
        let Some(end) = crate::source::closing_bracket(&kernel.source.code, open) else { continue };
        let inner = &kernel.source.code[open + 1..end];
        // Only elements of arrays: conversions of loaded values.
        if inner.ends_with(']') {
            let new = format!("f32(i32({}))", &kernel.source.full[open + 1..end]);
            found.push(kernel.text(at..end + 1, new));
        }
    }
    found
}

/// Stores to f16 that round toward zero.
pub fn truncated_store(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let text = "
fn to_act_cut(v: f32) -> act {
    return act(bitcast<f32>(bitcast<u32>(v) & 0xffffe000u));
}
";
    if kernel.source.is_cuda() {
        let cut = "[](float f) { return to_half(__uint_as_float(__float_as_uint(f) & 0xffffe000u)); }";
        return rename_calls(kernel, "to_half", cut, "");
    }
    if kernel.source.full.contains("alias act = f16;") {
        rename_calls(kernel, "to_act", "to_act_cut", text)
    } else {
        Vec::new()
    }
}
