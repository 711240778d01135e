//! Kernels of ONNX operators, by families: what computes each element from the same place of its inputs, what moves elements,
//! what reduces them. Names and meanings are those of <https://onnx.ai/onnx/operators/>; the versions that a planner knows are
//! told apart there. All sizes are constant: a graph with such operators is recorded for the sizes of its inputs.
//!
//! Integers that decide where elements go, such as the starts of `Slice`, are read by the kernel as it runs: they are inputs.

mod attention;
mod compare;
mod constants;
mod convolution;
mod dynamic_recurrent;
mod epilogue;
mod formulas;
mod gelu;
mod groups;
mod heads;
mod joining;
mod map;
mod matrix;
mod movement;
mod nbits;
mod normalise;
mod order;
mod pairs;
mod places;
mod pool;
mod quantize;
mod quantized;
mod recurrent;
mod reduce;
mod resize;
mod running;
mod samples;
mod scatter;
mod skip;
mod softmax;
mod variadic;
mod walk;
mod window;

pub use samples::samples_of;

pub mod plans {
    //! The planners, for the kernel list.
    pub use super::attention::plan as attention;
    pub use super::compare::plan as compare;
    pub use super::constants::{plan_filled as filled, plan_range as range, plan_sizes as sizes};
    pub use super::convolution::{
        gains_by_tiles, plan as convolution, plan_tiled as tiled_convolution,
        plan_transposed as transposed_convolution,
    };
    pub use super::dynamic_recurrent::plan as dynamic_lstm;
    pub use super::epilogue::plan_chain as chain;
    pub use super::gelu::plan as gelu;
    pub use super::groups::{
        plan_grouped as grouped_attention, plan_multi_head as multi_head_attention,
        plan_projected as projected_attention,
    };
    pub use super::heads::plan_rotary as rotary;
    pub use super::joining::{plan_concat as concat, plan_copy as copy, plan_split as split};
    pub use super::map::plan as map;
    pub use super::matrix::{
        plan_gemm as gemm, plan_matmul as matmul, plan_with_epilogue as product_with_epilogue,
    };
    pub use super::movement::{
        plan_expand as expand, plan_gather as gather, plan_pad as pad, plan_slice as slice,
        plan_transpose as transpose, plan_where as choose,
    };
    pub use super::nbits::plan as nbits;
    pub use super::normalise::{
        plan_along as norm_along, plan_batch as batch_norm, plan_instance as instance_norm,
        plan_layer as layer_norm, plan_local as local_response, plan_rms as rms_norm,
    };
    pub use super::order::{plan_argument as argument, plan_top_k as top_k};
    pub use super::pairs::plan as pairs;
    pub use super::places::{
        plan_blocks as blocks, plan_eye as eye, plan_gather_elements as gather_elements,
        plan_gather_nd as gather_nd, plan_one_hot as one_hot, plan_tile as tile, plan_trilu as trilu,
    };
    pub use super::pool::plan as pool;
    pub use super::quantize::{plan as quantize, plan_dynamic as dynamic_quantize};
    pub use super::quantized::{plan_convolution as integer_convolution, plan_matmul as integer_matmul};
    pub use super::recurrent::plan as recurrent;
    pub use super::reduce::plan as reduce;
    pub use super::resize::plan as resize;
    pub use super::running::plan as running;
    pub use super::scatter::{plan_elements as scatter_elements, plan_nd as scatter_nd};
    pub use super::skip::plan as skip_norm;
    pub use super::softmax::plan as softmax;
    pub use super::variadic::plan as variadic;
}

use super::Request;
use super::source::{KernelSource, LaunchBuilder, single_workgroup, wrong_op};
use crate::plan::{Arg, Launch, NodePlan};
use tapml_device::Grid;
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{DType, Dim, Error, Extent, Op, Result, TensorType};

/// Most dimensions of a tensor whose elements a kernel tells apart by their coordinates.
const MAX_RANK: usize = 8;

/// A node of an operator of the standard: inputs and outputs by their places.
///
/// Optional inputs may be left out, so that places and numbers differ: a kernel binds numbers, the standard names
/// places.
struct OnnxNode<'a> {
    /// The operator, with its attributes as the file has them.
    op: &'a Foreign,
    /// By place; `None` where an input is left out.
    inputs: Vec<Option<Placed<'a>>>,
    /// By place; `None` where an output is not asked for.
    outputs: Vec<Option<Placed<'a>>>,
}

/// An input or output: its number among those that are there, and its type.
#[derive(Clone, Copy)]
struct Placed<'a> {
    /// Its number: what [`Arg::Input`] and [`Arg::Output`] take.
    index: usize,
    /// Its type, as the graph declares it.
    ty: &'a TensorType,
}

impl Placed<'_> {
    /// The dtype of its elements.
    fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// Its sizes; fails as [`sizes_of`].
    fn sizes(&self) -> Result<Vec<u32>> {
        sizes_of(self.ty)
    }

    /// How many elements it has.
    fn count(&self) -> Result<u32> {
        count(&self.sizes()?)
    }
}

/// Sizes that fit 32 bits.
///
/// # Errors
/// `Unsupported` for symbolic or larger sizes, and for more than [`MAX_RANK`] dimensions.
fn sizes_of(ty: &TensorType) -> Result<Vec<u32>> {
    if ty.shape.len() > MAX_RANK {
        return Err(Error::unsupported(format!("{ty}: kernels take at most {MAX_RANK} dimensions")));
    }
    let size = |dim: &Dim| dim.as_const().and_then(|size| u32::try_from(size).ok());
    let sizes = ty.shape.iter().map(size).collect::<Option<Vec<u32>>>();
    sizes.ok_or_else(|| Error::unsupported(format!("{ty}: kernels need sizes of 32 bits")))
}

/// Elements of these sizes.
///
/// # Errors
/// `Unsupported` for more than 32 bits can count: kernels index elements by `u32`.
fn count(sizes: &[u32]) -> Result<u32> {
    let count = sizes.iter().try_fold(1u32, |all, &size| all.checked_mul(size));
    count.ok_or_else(|| Error::unsupported(format!("{sizes:?}: more than 2³² elements")))
}

/// The distance in elements from one index to the next, of each dimension.
fn strides(sizes: &[u32]) -> Vec<u32> {
    let mut strides = vec![1u32; sizes.len()];
    for at in (1..sizes.len()).rev() {
        // Wraps rather than panics: sizes come from files.
        strides[at - 1] = strides[at].wrapping_mul(sizes[at]);
    }
    strides
}

/// The strides of an operand that stretches to these sizes: 0 along a dimension where all read the same.
///
/// Dimensions are aligned from the last on, as the standard's broadcasting has it.
fn broadcast_strides(from: &[u32], to: &[u32]) -> Result<Vec<u32>> {
    let missing = to.len().checked_sub(from.len());
    let missing = missing.ok_or_else(|| Error::invalid(format!("{from:?} does not stretch to {to:?}")))?;
    let own = strides(from);
    let stride = |(at, &to): (usize, &u32)| match at.checked_sub(missing).map(|at| (from[at], own[at])) {
        // A dimension in front that the operand lacks counts as one of size 1.
        None | Some((1, _)) => Ok(0),
        Some((size, stride)) if size == to => Ok(stride),
        Some((size, _)) => Err(Error::invalid(format!("a size of {size} does not stretch to {to}"))),
    };
    to.iter().enumerate().map(stride).collect()
}

impl<'a> OnnxNode<'a> {
    /// The node of a request. Fails with a bug error if the operator is no foreign one.
    fn from_request(request: &'a Request) -> Result<OnnxNode<'a>> {
        let Op::Foreign(op) = request.op else { return Err(wrong_op(request)) };
        let number = |types: &'a [TensorType]| {
            types.iter().enumerate().map(|(index, ty)| Placed { index, ty }).collect::<Vec<_>>()
        };
        let mut outputs = number(request.outputs).into_iter();
        // The request lists only outputs that are asked for; the operator lists all places.
        let taken = op.outputs().iter().map(DeclaredType::is_asked);
        let outputs = taken.map(|asked| if asked { outputs.next() } else { None }).collect();
        Ok(OnnxNode { op, inputs: op.place_inputs(number(request.inputs)), outputs })
    }

    /// The version of the operator set; the largest number if none is given, which stands for the newest.
    fn version(&self) -> u32 {
        self.op.version().unwrap_or(u32::MAX)
    }

    /// An input that must be there.
    fn input(&self, place: usize) -> Result<Placed<'a>> {
        self.optional(place).ok_or_else(|| Error::invalid(format!("input {place} is missing")))
    }

    /// An input that may be left out.
    fn optional(&self, place: usize) -> Option<Placed<'a>> {
        self.inputs.get(place).copied().flatten()
    }

    /// An output that must be asked for.
    fn output(&self, place: usize) -> Result<Placed<'a>> {
        let output = self.outputs.get(place).copied().flatten();
        output.ok_or_else(|| self.unserved_error(&format!("output {place} is not asked for")))
    }

    /// An output, which must have these sizes and this dtype: what a node declares comes from a file, and kernels read and write
    /// what the planner believes.
    fn gives(&self, place: usize, dtype: DType, sizes: &[u32]) -> Result<Placed<'a>> {
        let output = self.output(place)?;
        self.expect(output, "declares", dtype, sizes).map(|()| output)
    }

    /// An input, which must have these sizes and this dtype.
    fn takes(&self, place: usize, dtype: DType, sizes: &[u32]) -> Result<Placed<'a>> {
        let input = self.input(place)?;
        self.expect(input, "takes", dtype, sizes).map(|()| input)
    }

    /// As [`OnnxNode::takes`], of an input that may be absent.
    fn may_take(&self, place: usize, dtype: DType, sizes: &[u32]) -> Result<Option<Placed<'a>>> {
        self.optional(place).map(|_| self.takes(place, dtype, sizes)).transpose()
    }

    /// Fails unless dtype and sizes are these; `what` is a verb for messages.
    fn expect(&self, found: Placed, what: &str, dtype: DType, sizes: &[u32]) -> Result<()> {
        if found.dtype() == dtype && found.sizes()? == sizes {
            return Ok(());
        }
        let expected = TensorType::new(dtype, sizes.iter().map(|&size| u64::from(size)));
        Err(Error::invalid(format!("`{}` {what} {}, expected {expected}", self.op.kind(), found.ty)))
    }

    /// Fails on an attribute that the planner does not read.
    fn reads(&self, known: &[&str]) -> Result<()> {
        // An attribute that is passed over could change the result.
        match self.op.attributes().keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(self.unserved_error(&format!("the attribute `{name}`"))),
            None => Ok(()),
        }
    }

    /// An integer attribute.
    fn int(&self, name: &str, default: i64) -> Result<i64> {
        let Some(value) = self.op.attributes().get(name) else { return Ok(default) };
        value
            .as_i64()
            .ok_or_else(|| Error::invalid(format!("attribute `{name}` is {value}, expected an integer")))
    }

    /// A number attribute; integers count too.
    fn float(&self, name: &str, default: f64) -> Result<f64> {
        let Some(value) = self.op.attributes().get(name) else { return Ok(default) };
        value.as_f64().ok_or_else(|| self.unserved_error(&format!("attribute `{name}` of {value}")))
    }

    /// A text attribute.
    fn text(&self, name: &str, default: &'static str) -> Result<&str> {
        let Some(value) = self.op.attributes().get(name) else { return Ok(default) };
        value
            .as_str()
            .ok_or_else(|| Error::invalid(format!("attribute `{name}` is {value}, expected a text")))
    }

    /// A list of integers; `None` if the attribute is absent.
    fn ints(&self, name: &str) -> Result<Option<Vec<i64>>> {
        let Some(value) = self.op.attributes().get(name) else { return Ok(None) };
        // Importers write a list plainly, or as an object that names its type.
        let list = value.as_array().or_else(|| value.get("ints")?.as_array());
        let ints = list.and_then(|list| list.iter().map(|value| value.as_i64()).collect());
        let wrong = || Error::invalid(format!("attribute `{name}` is {value}, expected integers"));
        ints.ok_or_else(wrong).map(Some)
    }

    /// An attribute that counts from the end if it is negative.
    fn axis(&self, value: i64, rank: usize) -> Result<usize> {
        let rank = rank as i64;
        let from_front = if value < 0 { value + rank } else { value };
        // Negative numbers that reach beyond the front fail here too.
        let found = usize::try_from(from_front).ok().filter(|_| from_front < rank);
        found.ok_or_else(|| Error::invalid(format!("axis {value} of a tensor of {rank} dimensions")))
    }

    /// The error of a node that the standard allows and the kernel does not serve.
    fn unserved_error(&self, what: &str) -> Error {
        Error::unsupported(format!("the kernel of `{}` does not serve {what}", self.op.kind()))
    }

    /// The dtype of the first input, one that kernels compute with.
    fn float_dtype(&self) -> Result<DType> {
        let dtype = self.input(0)?.dtype();
        match dtype {
            DType::F32 | DType::F16 => Ok(dtype),
            other => Err(self.unserved_error(&format!("{other}"))),
        }
    }
}

/// A launch of a kernel whose text is put together.
fn launch(kernel: &KernelSource, dtype: DType, text: String) -> Result<LaunchBuilder> {
    Ok(kernel.launch(dtype, dtype)?.text(text))
}

/// 32-bit words as bytes of a constant; an empty list has one word.
/// A buffer of zero bytes cannot be bound.
fn words(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut bytes: Vec<u8> = values.into_iter().flat_map(u32::to_le_bytes).collect();
    bytes.resize(bytes.len().max(4), 0);
    bytes
}

/// A plan of these launches with these constants and a chain of so many additions.
fn plan_with(kernel: &KernelSource, launches: Vec<Launch>, constants: Vec<Vec<u8>>, chain: u32) -> NodePlan {
    NodePlan { constants, ..super::source::plan(kernel, launches, chain) }
}

/// So many workgroups along two dimensions.
///
/// A dispatch has at most 65,535 workgroups in each dimension on every WebGPU device. Texts count `x + 65535 · y` and
/// end those beyond the last.
fn grid(groups: u32) -> Grid {
    [
        Extent::from_dim(u64::from(groups.min(65535))),
        Extent::from_dim(u64::from(groups.div_ceil(65535))),
        single_workgroup(),
    ]
}

/// All of an input.
fn whole(input: Placed) -> Arg {
    Arg::whole_input(input.index)
}
