//! Reductions along some dimensions, and the global pools, which reduce all behind the second.
//!
//! A team of lanes adds up the terms of one output: each lane takes every n-th, and a tree joins the lanes.

use super::{OnnxNode, grid, launch, plan_with, strides, whole, words};
use crate::kernel::Request;
use crate::kernel::source::KernelSource;
use crate::plan::{Arg, NodePlan};
use tapml_graph::{DType, Error, Result};

/// A number for each of 256 lanes lies in workgroup memory.
const KERNEL: KernelSource = KernelSource {
    math: true,
    workgroup_memory: 1024,
    ..KernelSource::flat("onnx/reduce", "onnx/order.wgsl+onnx/place.wgsl+onnx/reduce.wgsl", "")
};
/// Of integers of two words.
const LONG: KernelSource = KernelSource { workgroup_memory: 2048, ..KERNEL };

/// How a reduction works: what a lane begins with, what a term is, how two come together, what becomes of the whole.
///
/// All four are WGSL expressions of `v`, or of `a` and `b`, on the type `val`.
struct Reduction {
    /// What a lane begins with; it may read its first term as `v`.
    start: &'static str,
    /// What becomes of an element before it is taken together with others.
    term: &'static str,
    /// How two are taken together; the order is not fixed.
    join: &'static str,
    /// What becomes of the whole.
    finish: &'static str,
}

/// The zero of any type of numbers.
const SUM: Reduction = Reduction { start: "val()", term: "v", join: "a + b", finish: "v" };
/// The sum over the number of terms.
const MEAN: Reduction = Reduction { finish: "v / f32(TERMS)", ..SUM };
/// The first term again: it changes nothing. What is not a number stays so.
const MAX: Reduction = Reduction { start: "v", term: "v", join: "larger(a, b)", finish: "v" };
/// As [`MAX`] with the other order.
const MIN: Reduction = Reduction { join: "smaller(a, b)", ..MAX };

/// Of floats.
fn reduction(name: &str) -> Option<Reduction> {
    Some(match name {
        "ReduceSum" => SUM,
        "ReduceMean" | "GlobalAveragePool" => MEAN,
        "ReduceMax" => MAX,
        // What is not a number is passed over, as by the other pools.
        "GlobalMaxPool" => Reduction { join: "larger_number(a, b)", ..MAX },
        "ReduceMin" => MIN,
        "ReduceProd" => Reduction { start: "1.0", join: "a * b", ..SUM },
        "ReduceL1" => Reduction { term: "abs(v)", ..SUM },
        "ReduceL2" => Reduction { term: "v * v", finish: "sqrt(v)", ..SUM },
        "ReduceSumSquare" => Reduction { term: "v * v", ..SUM },
        // `formula` is the logarithm of `log.wgsl`.
        "ReduceLogSum" => Reduction { finish: "formula(v)", ..SUM },
        _ => return None,
    })
}

/// Of integers of one word.
fn reduction_of_words(name: &str) -> Option<Reduction> {
    Some(match name {
        "ReduceSum" => SUM,
        "ReduceMax" => Reduction { join: "max(a, b)", ..MAX },
        "ReduceMin" => Reduction { join: "min(a, b)", ..MAX },
        "ReduceProd" => Reduction { start: "val(1)", join: "a * b", ..SUM },
        _ => return None,
    })
}

/// Of integers of two words.
fn reduction_of_long(name: &str) -> Option<Reduction> {
    Some(match name {
        "ReduceSum" => Reduction { join: "sum64(a, b)", ..SUM },
        "ReduceMax" => Reduction { join: "select(a, b, less64(a, b))", ..MAX },
        "ReduceMin" => Reduction { join: "select(a, b, less64(b, a))", ..MAX },
        "ReduceProd" => Reduction { start: "val(1u, 0u)", join: "product64(a, b)", ..SUM },
        _ => return None,
    })
}

impl Reduction {
    /// The text with the functions of this reduction behind it.
    fn text(&self, numbers: &str) -> String {
        let Reduction { start, term, join, finish } = self;
        let functions = [("start", "v: val", start), ("term", "v: val", term), ("finish", "v: val", finish)];
        let mut text = format!("{numbers}{}", include_str!("order.wgsl"));
        if finish.contains("formula") {
            text += include_str!("log.wgsl");
        }
        text += concat!(include_str!("place.wgsl"), include_str!("reduce.wgsl"));
        for (name, given, value) in functions {
            text += &format!("fn {name}({given}) -> val {{ return {value}; }}\n");
        }
        text + &format!("fn join(a: val, b: val) -> val {{ return {join}; }}\n")
    }
}

/// What reduces numbers of such a dtype.
struct ReductionText {
    kernel: KernelSource,
    /// Of what is computed with.
    dtype: DType,
    text: String,
}

fn text_of(node: &OnnxNode) -> Result<ReductionText> {
    let (name, dtype) = (node.op.name(), node.input(0)?.dtype());
    let (kernel, found, numbers) = match dtype {
        // It subtracts the maximum first, so that it has a text of its own.
        DType::F32 | DType::F16 if name == "ReduceLogSumExp" => {
            let text = [
                include_str!("order.wgsl"),
                include_str!("log.wgsl"),
                include_str!("place.wgsl"),
                include_str!("log_sum_exp.wgsl"),
            ];
            return Ok(ReductionText { kernel: KERNEL, dtype, text: text.concat() });
        }
        DType::F32 | DType::F16 => (KERNEL, reduction(name), include_str!("numbers_float.wgsl")),
        DType::I32 => (KERNEL, reduction_of_words(name), include_str!("numbers_i32.wgsl")),
        DType::U32 => (KERNEL, reduction_of_words(name), include_str!("numbers_u32.wgsl")),
        DType::I64 => (LONG, reduction_of_long(name), include_str!("numbers_i64.wgsl")),
        _ => (KERNEL, None, ""),
    };
    let found = found.ok_or_else(|| node.unserved_error(&format!("{dtype}")))?;
    let dtype = if dtype == DType::F16 { DType::F16 } else { DType::F32 };
    Ok(ReductionText { kernel, dtype, text: found.text(numbers) })
}

/// The dimensions that a node reduces: by its attribute, or told from the sizes of input and output. They are an input in new
/// versions, which a planner does not see; a dimension of one element counts for nothing.
fn axes(node: &OnnxNode, from: &[u32], to: &[u32]) -> Result<Vec<bool>> {
    let rank = from.len();
    if node.op.name().starts_with("Global") {
        return Ok((0..rank).map(|d| d >= 2).collect());
    }
    if let Some(axes) = node.ints("axes")? {
        let mut reduced = vec![false; rank];
        for axis in axes {
            reduced[node.axis(axis, rank)?] = true;
        }
        return Ok(reduced);
    }
    let given = if node.op.name() == "ReduceSum" { node.version() >= 13 } else { node.version() >= 18 };
    // Without axes all dimensions are reduced, unless the node says that none are.
    if node.optional(1).is_none() && (!given || node.int("noop_with_empty_axes", 0)? == 0) {
        return Ok(vec![true; rank]);
    }
    let keeps = node.int("keepdims", 1)? != 0;
    let fits = |reduced: &[bool]| -> bool {
        let left = from.iter().zip(reduced).filter_map(|(&size, &reduced)| match (reduced, keeps) {
            (false, _) => Some(size),
            (true, true) => Some(1),
            (true, false) => None,
        });
        left.eq(to.iter().copied())
    };
    // At most 256 sets, since tensors have at most eight dimensions.
    let all = (0..1usize << rank).map(|bits| (0..rank).map(|d| bits >> d & 1 == 1).collect::<Vec<bool>>());
    let found: Vec<Vec<bool>> = all.filter(|reduced| fits(reduced)).collect();
    let matter = |reduced: &[bool]| -> Vec<bool> {
        reduced.iter().zip(from).map(|(&r, &size)| r && size != 1).collect()
    };
    let alike = found.windows(2).all(|two| matter(&two[0]) == matter(&two[1]));
    match found.into_iter().next() {
        Some(first) if alike => Ok(first),
        None => Err(Error::invalid(format!("{to:?} is no reduction of {from:?}"))),
        _ => Err(node.unserved_error(&format!("axes that {to:?} from {from:?} does not tell"))),
    }
}

/// The plan of a reduction or of a global pool.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["axes", "keepdims", "noop_with_empty_axes"])?;
    let (x, y) = (node.input(0)?, node.output(0)?);
    let ReductionText { kernel, dtype, text } = text_of(&node)?;
    let from = x.sizes()?;
    let reduced = axes(&node, &from, &y.sizes()?)?;
    let own = strides(&from);
    let dims = |wanted: bool| -> Vec<usize> {
        (0..from.len()).filter(|&d| reduced[d] == wanted && from[d] != 1).collect()
    };
    let keeps = node.int("keepdims", 1)? != 0 || node.op.name().starts_with("Global");
    let left = from.iter().zip(&reduced).filter_map(|(&size, &reduced)| match (reduced, keeps) {
        (false, _) => Some(size),
        (true, true) => Some(1),
        (true, false) => None,
    });
    node.gives(0, x.dtype(), &left.collect::<Vec<u32>>())?;
    let (kept, gone) = (dims(false), dims(true));
    let terms = super::count(&gone.iter().map(|&d| from[d]).collect::<Vec<_>>())?;
    let outputs = y.count()?;
    if terms == 0 || outputs == 0 {
        return Err(node.unserved_error("an empty tensor"));
    }
    let order: Vec<usize> = kept.iter().chain(&gone).copied().collect();
    let sizes = words(order.iter().map(|&d| from[d]).chain(order.iter().map(|&d| own[d])));
    // Short sums share a workgroup: a lane has about four terms.
    let team = terms.div_ceil(4).next_power_of_two().min(256);
    let launch = launch(&kernel, dtype, text)?.read(whole(x)).read(Arg::Constant(0));
    let launch = launch.output(y.index).set("OUTPUTS", outputs).set("TERMS", terms);
    let launch = launch.set("KEPT", kept.len() as u32).set("DIMS", order.len() as u32).set("TEAM", team);
    let groups = outputs.div_ceil(256 / team);
    Ok(plan_with(&kernel, vec![launch.groups(grid(groups))], vec![sizes], terms.div_ceil(team)))
}
