//! Functions of one number.
//!
//! Each function is a WGSL text `formula(v)` on f32, with its attributes as `override` constants. The same texts
//! serve alone, by the kernel of [`crate::kernel::elementwise`], and as parts of an epilogue.

use super::{OnnxNode, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::elementwise;
use crate::kernel::formula::Formula;
use crate::kernel::source::KernelSource;
use crate::kernel::{gelu, sigmoid, softplus, tanh};
use crate::plan::{Arg, NodePlan};
use tapml_graph::op::GeluForm;
use tapml_graph::{Dim, Error, Result};

/// A function: its operator, its text, its attributes with the constants that they become and their defaults.
type FunctionRow = (&'static str, &'static str, &'static [(&'static str, &'static str, f64)]);

/// The text of a function of an angle.
macro_rules! angle {
    ($formula:literal) => {
        concat!(include_str!("../rope_angles/turns.wgsl"), include_str!("sine.wgsl"), $formula)
    };
}

/// WGSL leaves what becomes of NaN in `min`, `max` and `clamp` open; comparisons keep it.
const FUNCTIONS: &[FunctionRow] = &[
    ("Relu", "fn formula(v: f32) -> f32 { return select(v, 0.0, v < 0.0); }", &[]),
    (
        "LeakyRelu",
        "override ALPHA: f32;\nfn formula(v: f32) -> f32 { return select(v, ALPHA * v, v < 0.0); }",
        &[("alpha", "ALPHA", 0.01)],
    ),
    (
        "ThresholdedRelu",
        "override ALPHA: f32;\nfn formula(v: f32) -> f32 { return select(v, 0.0, v <= ALPHA); }",
        &[("alpha", "ALPHA", 1.0)],
    ),
    ("Elu", include_str!("elu.wgsl"), &[("alpha", "ALPHA", 1.0)]),
    (
        "Selu",
        include_str!("elu.wgsl"),
        &[("alpha", "ALPHA", 1.673_263_192_176_818_8), ("gamma", "GAMMA", 1.050_701_022_148_132_3)],
    ),
    ("HardSigmoid", include_str!("hard_sigmoid.wgsl"), &[("alpha", "ALPHA", 0.2), ("beta", "BETA", 0.5)]),
    ("HardSwish", include_str!("hard_swish.wgsl"), &[]),
    ("Softsign", "fn formula(v: f32) -> f32 { return v / (1.0 + abs(v)); }", &[]),
    (
        "Exp",
        concat!(
            include_str!("order.wgsl"),
            "fn formula(v: f32) -> f32 { return select(exp_accurate(v), v, is_nan(v)); }"
        ),
        &[],
    ),
    // WGSL bounds the error of its logarithm near 1 only absolutely.
    ("Log", include_str!("log.wgsl"), &[]),
    ("Sqrt", "fn formula(v: f32) -> f32 { return sqrt(v); }", &[]),
    ("Reciprocal", "fn formula(v: f32) -> f32 { return 1.0 / v; }", &[]),
    ("Abs", "fn formula(v: f32) -> f32 { return abs(v); }", &[]),
    ("Neg", "fn formula(v: f32) -> f32 { return -v; }", &[]),
    ("Floor", "fn formula(v: f32) -> f32 { return floor(v); }", &[]),
    ("Ceil", "fn formula(v: f32) -> f32 { return ceil(v); }", &[]),
    // WGSL rounds half to even, as the standard does.
    ("Round", "fn formula(v: f32) -> f32 { return round(v); }", &[]),
    ("Sign", "fn formula(v: f32) -> f32 { return sign(v); }", &[]),
    (
        "Erf",
        concat!(include_str!("order.wgsl"), include_str!("../gelu/tail.wgsl"), include_str!("erf.wgsl")),
        &[],
    ),
    // Celu divides by the attribute that it multiplies by; ELU is the same text with a divisor of 1.
    ("Celu", include_str!("elu.wgsl"), &[("alpha", "ALPHA", 1.0), ("alpha", "DIVISOR", 1.0)]),
    ("Mish", include_str!("mish.wgsl"), &[]),
    ("Swish", include_str!("swish.wgsl"), &[("alpha", "ALPHA", 1.0)]),
    (
        "Shrink",
        concat!(include_str!("order.wgsl"), include_str!("shrink.wgsl")),
        &[("bias", "BIAS", 0.0), ("lambd", "LIMIT", 0.5)],
    ),
    ("Sin", angle!("fn formula(v: f32) -> f32 { return cos_sin_of(v).y; }"), &[]),
    ("Cos", angle!("fn formula(v: f32) -> f32 { return cos_sin_of(v).x; }"), &[]),
    (
        "Tan",
        angle!(
            "fn formula(v: f32) -> f32 {\n    let found = cos_sin_of(v);\n    return found.y / found.x;\n}"
        ),
        &[],
    ),
    ("Asin", concat!(include_str!("arc_sine.wgsl"), include_str!("asin.wgsl")), &[]),
    ("Acos", concat!(include_str!("arc_sine.wgsl"), include_str!("acos.wgsl")), &[]),
    ("Atan", include_str!("atan.wgsl"), &[]),
    ("Sinh", include_str!("sinh.wgsl"), &[]),
    ("Cosh", include_str!("cosh.wgsl"), &[]),
    ("Asinh", concat!(include_str!("area.wgsl"), include_str!("asinh.wgsl")), &[]),
    ("Acosh", concat!(include_str!("area.wgsl"), include_str!("acosh.wgsl")), &[]),
    ("Atanh", concat!(include_str!("area.wgsl"), include_str!("atanh.wgsl")), &[]),
];

/// The formula of a node, with its constants.
///
/// # Errors
/// `Unsupported` for another operator, and for attributes that it does not have.
pub(super) fn formula(node: &OnnxNode) -> Result<Formula> {
    let formula = match node.op.name() {
        "Sigmoid" => sigmoid::formula(),
        "Tanh" => tanh::formula(),
        "Softplus" => softplus::formula(),
        // Two formulas by an attribute.
        "Gelu" => {
            node.reads(&["approximate"])?;
            return match node.text("approximate", "none")? {
                "none" => Ok(gelu::formula(GeluForm::None)),
                "tanh" => Ok(gelu::formula(GeluForm::Tanh)),
                other => Err(node.unserved_error(&format!("`approximate` of `{other}`"))),
            };
        }
        name => {
            let &(_, text, attributes) =
                FUNCTIONS.iter().find(|row| row.0 == name).ok_or_else(|| node.unserved_error("it"))?;
            node.reads(&attributes.iter().map(|row| row.0).collect::<Vec<_>>())?;
            let set = |formula: Formula, &(attribute, constant, default): &(&str, &'static str, f64)| {
                Ok(formula.set(constant, node.float(attribute, default)?))
            };
            return attributes.iter().try_fold(Formula::new(text), set);
        }
    };
    node.reads(&[])?;
    Ok(formula)
}

/// The plan of a function of one number, or of `Clip`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.gives(0, node.float_dtype()?, &node.input(0)?.sizes()?)?;
    match node.op.name() {
        "Clip" => plan_clip(&node),
        "Gelu" => elementwise::plan(request, "onnx/gelu", &formula(&node)?),
        _ => elementwise::plan(request, "onnx/map", &formula(&node)?),
    }
}

/// Limits are bound, or set as constants.
const CLIP: KernelSource = KernelSource::flat("onnx/clip", "onnx/clip.wgsl", include_str!("clip.wgsl"));

/// The limits are attributes up to version 10, inputs of one element after it.
fn plan_clip(node: &OnnxNode) -> Result<NodePlan> {
    let (x, y) = (node.input(0)?, node.output(0)?);
    let given = |place: usize, name: &str| match node.optional(place) {
        Some(limit) if limit.dtype() != x.dtype() || limit.count()? != 1 => {
            Err(Error::invalid(format!("a limit of {} for {}", limit.ty, x.ty)))
        }
        // 0: no limit, 1: the bound one, 2: the constant.
        Some(limit) => Ok((whole(limit), 1u32)),
        None => Ok((Arg::Constant(0), if node.op.attributes().contains_key(name) { 2 } else { 0 })),
    };
    let ((low, has_low), (high, has_high)) = (given(1, "min")?, given(2, "max")?);
    node.reads(&["min", "max"])?;
    let launch = CLIP.launch(x.dtype(), x.dtype())?.read(whole(x)).read(low).read(high).output(y.index);
    let launch = launch.set("COUNT", y.count()?).set("HAS_LOW", has_low).set("HAS_HIGH", has_high);
    let launch = launch.set("LOW", node.float("min", 0.0)?).set("HIGH", node.float("max", 0.0)?);
    let launches = vec![launch.flat(Dim::from(u64::from(y.count()?)))];
    Ok(plan_with(&CLIP, launches, vec![vec![0; 4]], 0))
}
