//! Operators that move elements of any dtype: one text writes words, behind it stands where each element comes from.
//!
//! Elements are moved as bits, whatever their dtype. An invocation writes a whole word, which may hold several
//! elements: two invocations that wrote parts of one word would race.

use super::joining::words_of;
use super::walk::OperandWalk;
use super::{OnnxNode, Placed, broadcast_strides, plan_with, strides, whole, words};
use crate::kernel::Request;
use crate::kernel::source::{KernelSource, LaunchBuilder};
use crate::plan::{Arg, NodePlan};
use tapml_graph::{DType, Dim, Error, Result};

/// The text that writes, behind one that says where elements come from.
macro_rules! moved {
    ($name:literal, $($file:literal),+) => {
        KernelSource::flat(
            concat!("onnx/", $name),
            concat!($("onnx/", $file, "+",)+ "onnx/move.wgsl"),
            concat!($(include_str!($file),)+ include_str!("move.wgsl")),
        )
    };
}

pub(super) use moved;

/// The source of an element follows from its coordinates, by strides.
const STRIDED: KernelSource = moved!("strided", "strided.wgsl");
/// Starts, axes and steps are read as the kernel runs.
const SLICE: KernelSource = moved!("slice", "integers.wgsl", "axes.wgsl", "slice.wgsl");
/// Pads and axes are read as the kernel runs.
const PAD: KernelSource = moved!("pad", "integers.wgsl", "axes.wgsl", "pad.wgsl");
/// Indices are read as the kernel runs.
const GATHER: KernelSource = moved!("gather", "integers.wgsl", "gather.wgsl");
/// One of two operands for each element.
const WHERE: KernelSource = KernelSource::flat("onnx/where", "onnx/where.wgsl", include_str!("where.wgsl"));

/// The launch of a text that moves words.
///
/// It binds the output and sets the constants that `move.wgsl` declares. The uniform block comes last, as everywhere.
pub fn finish(
    kernel: &KernelSource,
    launch: LaunchBuilder,
    y: &Placed,
    constants: Vec<Vec<u8>>,
) -> Result<NodePlan> {
    let words = words_of(y)?;
    let launch = launch.output(y.index).set("COUNT", y.count()?).set("WORDS", words);
    let launch = launch.set("BYTES", y.dtype().size() as u32);
    Ok(plan_with(kernel, vec![launch.flat(Dim::from(u64::from(words)))], constants, 0))
}

/// Starts the launch. The dtype plays no part, since words are moved.
pub fn start(kernel: &KernelSource) -> Result<LaunchBuilder> {
    kernel.launch(DType::F32, DType::F32)
}

/// The words of an integer of an input.
pub fn int_words(node: &OnnxNode, input: &Placed) -> Result<u32> {
    match input.dtype() {
        DType::I64 => Ok(2),
        DType::I32 => Ok(1),
        other => Err(node.unserved_error(&format!("indices of {other}"))),
    }
}

/// A plan by strides of the first input along the dimensions of the output.
fn plan_strided(node: &OnnxNode, along: Vec<u32>) -> Result<NodePlan> {
    strided_over(node, &node.output(0)?.sizes()?, along)
}

/// A plan by strides of the first input along these dimensions, which have the elements of the output in their order.
pub fn strided_over(node: &OnnxNode, dims: &[u32], along: Vec<u32>) -> Result<NodePlan> {
    let (x, y) = (node.input(0)?, node.output(0)?);
    let walk = OperandWalk::from_strides(dims, vec![along]);
    let launch = start(&STRIDED)?.read(whole(x)).read(Arg::Constant(0)).set("RANK", walk.rank());
    finish(&STRIDED, launch, &y, vec![walk.words()])
}

/// A plan that fills the output with the one element in these words.
/// Strides of zero read the one element everywhere; constant 0 holds the sizes, constant 1 the element.
pub fn plan_repeated(y: &Placed, element: Vec<u8>) -> Result<NodePlan> {
    let sizes = y.sizes()?;
    let walk = OperandWalk::from_strides(&sizes, vec![vec![0; sizes.len()]]);
    let launch = start(&STRIDED)?.read(Arg::Constant(1)).read(Arg::Constant(0)).set("RANK", walk.rank());
    finish(&STRIDED, launch, y, vec![walk.words(), element])
}

/// `Transpose`; the default order is reversed.
pub fn plan_transpose(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["perm"])?;
    let own = strides(&node.input(0)?.sizes()?);
    let sizes = node.input(0)?.sizes()?;
    let order = match node.ints("perm")? {
        Some(order) => order.iter().map(|&d| node.axis(d, own.len())).collect::<Result<Vec<_>>>()?,
        None => (0..own.len()).rev().collect(),
    };
    node.gives(0, node.input(0)?.dtype(), &order.iter().map(|&d| sizes[d]).collect::<Vec<_>>())?;
    // A permutation names each dimension exactly once.
    if (0..own.len()).all(|d| order.contains(&d)) && order.len() == own.len() {
        plan_strided(&node, order.iter().map(|&d| own[d]).collect())
    } else {
        Err(Error::invalid(format!("`perm` has {} dimensions, expected {}", order.len(), own.len())))
    }
}

/// `Expand`. The declared output tells the sizes, and the input that holds them is not read.
pub fn plan_expand(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&[])?;
    let (x, y) = (node.input(0)?, node.output(0)?);
    let along = broadcast_strides(&x.sizes()?, &y.sizes()?)?;
    if x.dtype() != y.dtype() {
        return Err(Error::invalid(format!("{} from {}", y.ty, x.ty)));
    }
    plan_strided(&node, along)
}

/// Sizes of the output, sizes of the input, strides of the input.
fn shapes(x: &Placed, y: &Placed) -> Result<Vec<u8>> {
    let (from, to) = (x.sizes()?, y.sizes()?);
    let along = strides(&from);
    // Elements cannot come from an input without any.
    let empty = from.contains(&0) && !to.contains(&0);
    if from.len() == to.len() && x.dtype() == y.dtype() && !empty {
        Ok(words(to.into_iter().chain(from).chain(along)))
    } else {
        Err(Error::invalid(format!("{} from {}", y.ty, x.ty)))
    }
}

/// Integers that are an input, or an attribute in early versions.
struct Integers {
    /// Where they are.
    arg: Arg,
    /// Words of each: 2 of 64 bits, 1 of 32.
    words: u32,
    /// How many there are.
    count: u32,
}

/// Constants of a plan that grow as they are asked for.
struct PlanConstants(Vec<Vec<u8>>);

impl PlanConstants {
    /// Adds a constant; gives the argument that binds it.
    fn add(&mut self, bytes: Vec<u8>) -> Arg {
        self.0.push(bytes);
        Arg::Constant(self.0.len() - 1)
    }

    /// The integers of an input, or of an attribute; none if there is neither.
    fn integers(&mut self, node: &OnnxNode, place: usize, name: &str) -> Result<Option<Integers>> {
        if let Some(list) = node.ints(name)? {
            let count = list.len() as u32;
            let bytes: Vec<u8> = list.iter().flat_map(|value| value.to_le_bytes()).collect();
            return Ok(Some(Integers { arg: self.add(bytes), words: 2, count }));
        }
        let Some(input) = node.optional(place) else { return Ok(None) };
        Ok(Some(Integers { arg: whole(input), words: int_words(node, &input)?, count: input.count()? }))
    }
}

/// `Slice`. Starts may be activations: the kernel clamps them, so that no element outside of the input is read.
pub fn plan_slice(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["starts", "ends", "axes"])?;
    let (x, y) = (node.input(0)?, node.output(0)?);
    let mut constants = PlanConstants(vec![shapes(&x, &y)?]);
    let starts = constants.integers(&node, 1, "starts")?.ok_or_else(|| node.unserved_error("no starts"))?;
    let (axes, steps) = (constants.integers(&node, 3, "axes")?, constants.integers(&node, 4, "steps")?);
    let alike = |given: &Option<Integers>| {
        given.as_ref().is_none_or(|given| given.words == starts.words && given.count == starts.count)
    };
    // One constant tells the words of all three lists.
    if !alike(&axes) || !alike(&steps) {
        return Err(node.unserved_error("integers of several dtypes"));
    }
    // A dimension that is not sliced stays as it is; of one that is, the kernel keeps within x.
    let arg = |given: &Option<Integers>| given.as_ref().map_or(Arg::Constant(0), |given| given.arg);
    let larger = x.sizes()?.iter().zip(y.sizes()?).any(|(from, to)| to > *from);
    if larger {
        return Err(Error::invalid(format!("a slice of {} is {}", x.ty, y.ty)));
    }
    let launch = start(&SLICE)?.read(whole(x)).read(starts.arg).read(arg(&axes)).read(arg(&steps));
    let launch = launch.read(Arg::Constant(0)).set("RANK", x.sizes()?.len() as u32);
    let launch = launch.set("AXES", starts.count).set("INT_WORDS", starts.words);
    let launch =
        launch.set("HAS_AXES", u32::from(axes.is_some())).set("HAS_STEPS", u32::from(steps.is_some()));
    finish(&SLICE, launch, &y, constants.0)
}

/// `Pad`, in the modes of the standard.
pub fn plan_pad(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["mode", "pads", "value"])?;
    let (x, y) = (node.input(0)?, node.output(0)?);
    let mode = match node.text("mode", "constant")? {
        "constant" => 0u32,
        "reflect" => 1,
        "edge" => 2,
        "wrap" => 3,
        other => return Err(node.unserved_error(&format!("the mode `{other}`"))),
    };
    let mut constants = PlanConstants(vec![shapes(&x, &y)?]);
    let pads = constants.integers(&node, 1, "pads")?.ok_or_else(|| node.unserved_error("no pads"))?;
    let axes = constants.integers(&node, 3, "axes")?;
    // The attribute of early versions is a float; other dtypes would need its bits in their own form.
    let value = node.float("value", 0.0)? as f32;
    if axes.as_ref().is_some_and(|axes| axes.words != pads.words || 2 * axes.count != pads.count)
        || (value != 0.0 && x.dtype() != DType::F32)
    {
        return Err(node.unserved_error("such pads"));
    }
    // The value is an input from version 11 on.
    let given = node.may_take(2, x.dtype(), &[])?;
    let launch = start(&PAD)?.read(whole(x)).read(pads.arg).read(given.map_or(Arg::Constant(0), whole));
    let launch = launch.read(axes.as_ref().map_or(Arg::Constant(0), |axes| axes.arg)).read(Arg::Constant(0));
    let launch = launch.set("RANK", x.sizes()?.len() as u32).set("MODE", mode).set("AXES", pads.count / 2);
    let launch = launch.set("HAS_AXES", u32::from(axes.is_some())).set("INT_WORDS", pads.words);
    let launch = launch.set("HAS_VALUE", u32::from(given.is_some())).set("LOW", value.to_bits());
    finish(&PAD, launch, &y, constants.0)
}

/// `Gather`: the indices take the place of the axis.
pub fn plan_gather(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["axis"])?;
    let (x, indices) = (node.input(0)?, node.input(1)?);
    let sizes = x.sizes()?;
    let axis = node.axis(node.int("axis", 0)?, sizes.len())?;
    let picked = [&sizes[..axis], &indices.sizes()?, &sizes[axis + 1..]].concat();
    let y = node.gives(0, x.dtype(), &picked)?;
    let launch = start(&GATHER)?.read(whole(x)).read(whole(indices)).set("AXIS_SIZE", sizes[axis]);
    let launch = launch.set("INNER", super::count(&sizes[axis + 1..])?.max(1));
    let launch = launch.set("INDICES", indices.count()?.max(1)).set("INT_WORDS", int_words(&node, &indices)?);
    finish(&GATHER, launch, &y, Vec::new())
}

/// `Where`, for elements of whole words.
pub fn plan_where(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&[])?;
    let (condition, x, z, y) = (node.input(0)?, node.input(1)?, node.input(2)?, node.output(0)?);
    if condition.dtype() != DType::Bool || x.dtype() != y.dtype() || z.dtype() != y.dtype() {
        return Err(Error::invalid(format!("{} of {}, {} and {}", y.ty, condition.ty, x.ty, z.ty)));
    }
    if y.dtype().size() < 4 {
        return Err(node.unserved_error(&format!("{}", y.dtype())));
    }
    let walk = OperandWalk::from_operands(&y.sizes()?, &[&condition.sizes()?, &x.sizes()?, &z.sizes()?])?;
    let words = words_of(&y)?;
    let launch = start(&WHERE)?.read(whole(condition)).read(whole(x)).read(whole(z)).read(Arg::Constant(0));
    let launch = launch.output(y.index).set("RANK", walk.rank()).set("WORDS", words);
    let launch = launch.set("BYTES", y.dtype().size() as u32).flat(Dim::from(u64::from(words)));
    Ok(plan_with(&WHERE, vec![launch], vec![walk.words()], 0))
}
