//! The operators: one file each, listed once below. An operator's file holds its attributes, the maths in its docs,
//! shape inference and sample cases; a fused operator also holds the small graph of plain ones that defines it.
//!
//! The types of graphs stand here too: a graph has nodes, a node has an operator, and a fused operator has a graph.

use crate::dim::Symbols;
use crate::dtype::DType;
use crate::error::{Context, Error, Result};
use crate::pools::Pools;
use crate::tensor_type::TensorType;
use crate::value::{Output, State, Value, ValueId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

mod activation;
mod broadcast;
mod dot_product;
mod elementwise;
mod extreme;
mod fill;
mod find;
mod foreign;
mod neutral;
mod sample;
mod saturation;
mod shape;
mod subgraph;
pub use activation::Activation;
pub use broadcast::Broadcast;
pub use dot_product::DotProduct;
pub use extreme::Extreme;
pub use fill::{Fill, SampleInput};
pub use find::{names, samples_of};
pub use foreign::{DeclaredType, Foreign};
pub use gelu::GeluForm;
pub use neutral::Neutral;
pub use paged_recurrence::Recurrence;
pub use position_scale::PositionForm;
pub use rope_angles::{DynamicNtk, LongRope};
pub use route::{GroupScore, Groups, Scores};
pub use saturation::{Reach, Saturation};
pub use subgraph::{Subgraph, SubgraphNode};

/// A graph of tensor operators. Made by [`Builder`] or read from text; always verified.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    pub(crate) name: String,
    pub(crate) values: Vec<Value>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) states: Vec<State>,
    pub(crate) outputs: Vec<Output>,
}

/// One application of an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Unique name, by the checkpoint's module names where there is one.
    pub name: String,
    /// The operator with its attributes.
    pub op: Op,
    /// Inputs in the operator's order.
    pub inputs: Vec<ValueId>,
    /// Outputs in the operator's order.
    pub outputs: Vec<ValueId>,
}

/// An operator of [`crate::fusion::FUSIONS`], or a [`crate::fusion::REGION`]: the nodes of [`Fused::body`] as one.
///
/// The body has inputs and nodes alone, no weights or states: a weight is an input like any other. Its inputs and outputs
/// are those of the operator, in order, and have exactly the types that the operator takes and gives.
#[derive(Clone, Debug)]
pub struct Fused {
    /// The name of the row that it is an operator of.
    pub(crate) name: &'static str,
    /// Shared by clones of the operator.
    pub(crate) body: Arc<Graph>,
}

/// One case: an operator, symbol values and inputs.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What is special about it.
    pub name: String,
    /// The operator.
    pub op: Op,
    /// Values of the symbols.
    pub symbols: Symbols,
    /// The inputs.
    pub inputs: Vec<SampleInput>,
}

/// Most ranks of a sharded graph.
pub const MAX_RANKS: u32 = 64;

/// What every operator tells about itself. Implemented by the struct of its attributes.
pub trait Operator: Clone + Debug + PartialEq + Serialize + DeserializeOwned {
    /// Name in the text form, on the command line and in reports.
    const NAME: &'static str;

    /// Types of the outputs for these inputs, or what is wrong with them.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>>;

    /// Cases that exercise the operator: every attribute, dtype and odd size that a kernel could get wrong.
    fn samples() -> Vec<Sample>;

    /// For a fused operator, its meaning: a graph of plain operators with the same inputs and outputs in order.
    fn definition(&self, _inputs: &[TensorType]) -> Option<Result<Graph>> {
        None
    }

    /// Whether output 0 is input 0 with rows added behind it, so that a device may extend the buffer in place.
    fn appends(&self) -> bool {
        false
    }

    /// Whether output 0 is input 0 with some rows replaced, so that a runtime may write them into the buffer.
    fn overwrites(&self) -> bool {
        false
    }

    /// Whether row `i` of every output depends on row `i` of the inputs whose first size is that of output 0, on
    /// whole weights, and on nothing else: not on the symbols, not on other rows.
    fn row_wise(&self) -> bool {
        false
    }

    /// The inputs of these types that are pools of parts, of which a call names few; `None` if there are none.
    fn pools(&self, _inputs: &[TensorType]) -> Option<Pools> {
        None
    }

    /// The operator for [`Operator::pools`] of so many parts.
    fn with_parts(&self, _parts: u32) -> Self {
        self.clone()
    }

    /// The inputs that may be packed weights: shapes are inferred, and numbers computed, as if they were f32, which holds
    /// what they stand for.
    fn packed_inputs(&self) -> Range<usize> {
        0..0
    }

    /// The kinds of rows that its kernels must bear beside recorded ones.
    fn extremes(&self) -> &'static [Extreme] {
        Extreme::ALL
    }

    /// The input by which a function of its own saturates; `None` if it has none, or if its [`Operator::definition`] tells.
    fn saturation(&self) -> Option<Saturation> {
        None
    }

    /// The inputs whose dot products its output consists of; `None` if it does anything else.
    fn dot_product(&self) -> Option<DotProduct> {
        None
    }

    /// How many of the largest numbers in each row of input 0 it chooses, for later operators to work with; `None` if it does
    /// not choose. Where two lie near each other, a rounding decides what all that follows is made of.
    fn chosen_count(&self) -> Option<usize> {
        None
    }

    /// The input that decides how large the output is.
    fn size_from(&self) -> usize {
        0
    }

    /// Each an input or several, with values by which the operator changes nothing that matters: faults of its own do not
    /// show, unless it [gives rows a factor](Operator::gives_factors).
    fn neutral(&self) -> &'static [&'static [(usize, Neutral)]] {
        &[]
    }

    /// Whether it multiplies each row by one number, as norms do: a wrong one shows in all that follows from the row.
    fn gives_factors(&self) -> bool {
        false
    }

    /// Whether results may rest on few of the rows that they are made of, as those of a softmax do: only inputs near zero
    /// weigh all of them.
    fn is_row_dominated(&self) -> bool {
        false
    }
}

/// What is known of an operator by its name alone.
#[derive(Clone, Copy)]
pub struct OpInfo {
    /// [`Operator::NAME`].
    pub name: &'static str,
    /// [`Operator::samples`].
    pub samples: fn() -> Vec<Sample>,
    /// Reads attributes of JSON.
    parse: fn(serde_json::Value) -> serde_json::Result<Op>,
    /// Reads attributes from text, in which a float keeps its digits.
    parse_text: fn(&str) -> serde_json::Result<Op>,
}

macro_rules! operators {
    ($($module:ident::$ty:ident),+ $(,)?) => {
        $(mod $module; pub use $module::$ty;)+

        /// An operator with its attributes.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum Op {
            $(#[doc = concat!("See [`", stringify!($ty), "`].")] $ty($ty),)+
            /// Several operators as one; see [`Fused`].
            Fused(Fused),
            /// An operator of others; see [`Foreign`].
            Foreign(Foreign),
        }

        impl From<Fused> for Op { fn from(op: Fused) -> Op { Op::Fused(op) } }

        impl From<Foreign> for Op { fn from(op: Foreign) -> Op { Op::Foreign(op) } }

        $(impl From<$ty> for Op { fn from(op: $ty) -> Op { Op::$ty(op) } })+

        /// All operators, in the order of the list in this file.
        pub const OPS: &[OpInfo] = &[$(OpInfo {
            name: <$ty as Operator>::NAME,
            samples: <$ty as Operator>::samples,
            parse: |v| serde_json::from_value::<$ty>(v).map(Op::$ty),
            parse_text: |t| serde_json::from_str::<$ty>(t).map(Op::$ty),
        }),+];

        impl Op {
            /// The operator's name.
            pub fn name(&self) -> &'static str {
                match self { $(Op::$ty(_) => <$ty as Operator>::NAME,)+ Op::Fused(op) => op.name(), Op::Foreign(op) => op.kind() }
            }

            /// See [`Operator::infer`]; the operator's name is added to errors.
            pub fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
                let types = match self {
                    $(Op::$ty(op) => unpack_types(inputs, op.packed_inputs()).and_then(|inputs| op.infer(&inputs)),)+
                    Op::Fused(op) => op.infer(inputs),
                    Op::Foreign(op) => op.infer(inputs),
                };
                types.context(|| self.name().to_string())
            }

            /// See [`Operator::packed_inputs`]; a fused operator takes what its body says.
            pub fn packed_inputs(&self) -> Range<usize> {
                match self { $(Op::$ty(op) => op.packed_inputs(),)+ Op::Fused(op) => 0..op.body().inputs().count(), Op::Foreign(_) => 0..0 }
            }

            /// The attributes as a JSON object.
            pub fn attributes(&self) -> serde_json::Value {
                let json = match self {
                    $(Op::$ty(op) => serde_json::to_value(op),)+
                    Op::Fused(op) => serde_json::to_value(op),
                    Op::Foreign(op) => serde_json::to_value(op.attributes()),
                };
                json.unwrap_or_default()
            }

            /// The attributes as JSON text with the shortest digits that give the same `f32` again.
            pub fn attributes_text(&self) -> String {
                let text = match self {
                    $(Op::$ty(op) => serde_json::to_string(op),)+
                    Op::Fused(op) => serde_json::to_string(op),
                    Op::Foreign(op) => serde_json::to_string(op.attributes()),
                };
                text.unwrap_or_default()
            }

            /// See [`Operator::definition`].
            pub fn definition(&self, inputs: &[TensorType]) -> Option<Result<Graph>> {
                match self {
                    $(Op::$ty(op) => op.definition(inputs),)+
                    Op::Fused(op) => Some(Ok(op.body().clone())),
                    Op::Foreign(_) => None,
                }
            }

            /// See [`Operator::appends`].
            pub fn appends(&self) -> bool {
                match self { $(Op::$ty(op) => op.appends(),)+ Op::Fused(_) | Op::Foreign(_) => false }
            }

            /// See [`Operator::overwrites`].
            pub fn overwrites(&self) -> bool {
                match self {
                    $(Op::$ty(op) => op.overwrites(),)+
                    Op::Fused(fused) => fused.body().nodes().iter().any(|node| node.op.overwrites()),
                    Op::Foreign(_) => false,
                }
            }

            /// See [`Operator::row_wise`].
            pub fn row_wise(&self) -> bool {
                match self { $(Op::$ty(op) => op.row_wise(),)+ Op::Fused(op) => op.row_wise(), Op::Foreign(_) => false }
            }

            /// See [`Operator::pools`].
            pub fn pools(&self, inputs: &[TensorType]) -> Option<Pools> {
                match self { $(Op::$ty(op) => op.pools(inputs),)+ Op::Fused(op) => op.pools(), Op::Foreign(_) => None }
            }

            /// See [`Operator::with_parts`].
            pub fn with_parts(&self, parts: u32) -> Op {
                match self { $(Op::$ty(op) => op.with_parts(parts).into(),)+ Op::Fused(op) => op.with_parts(parts).into(), Op::Foreign(_) => self.clone() }
            }

            /// See [`Operator::extremes`].
            pub fn extremes(&self) -> &'static [Extreme] {
                match self { $(Op::$ty(op) => op.extremes(),)+ Op::Fused(op) => op.extremes(), Op::Foreign(op) => op.extremes() }
            }

            /// The input by which a function of the operator, or of those that it is defined by, saturates.
            pub fn saturation(&self, inputs: &[TensorType]) -> Option<Saturation> {
                let own = match self { $(Op::$ty(op) => op.saturation(),)+ Op::Fused(_) | Op::Foreign(_) => None };
                own.or_else(|| Saturation::find_in_graph(&self.definition(inputs)?.ok()?))
            }

            /// See [`Operator::dot_product`].
            pub fn dot_product(&self) -> Option<DotProduct> {
                match self { $(Op::$ty(op) => op.dot_product(),)+ Op::Fused(_) | Op::Foreign(_) => None }
            }

            /// See [`Operator::chosen_count`].
            pub fn chosen_count(&self) -> Option<usize> {
                match self { $(Op::$ty(op) => op.chosen_count(),)+ Op::Fused(_) | Op::Foreign(_) => None }
            }

            /// See [`Operator::size_from`].
            pub fn size_from(&self) -> usize {
                match self { $(Op::$ty(op) => op.size_from(),)+ Op::Fused(_) | Op::Foreign(_) => 0 }
            }

            /// See [`Operator::neutral`].
            pub fn neutral(&self) -> &'static [&'static [(usize, Neutral)]] {
                match self { $(Op::$ty(op) => op.neutral(),)+ Op::Fused(_) | Op::Foreign(_) => &[] }
            }

            /// See [`Operator::gives_factors`].
            pub fn gives_factors(&self) -> bool {
                match self { $(Op::$ty(op) => op.gives_factors(),)+ Op::Fused(_) | Op::Foreign(_) => false }
            }

            /// See [`Operator::is_row_dominated`].
            pub fn is_row_dominated(&self) -> bool {
                match self {
                    $(Op::$ty(op) => op.is_row_dominated(),)+
                    Op::Fused(fused) => fused.body().nodes().iter().any(|node| node.op.is_row_dominated()),
                    Op::Foreign(_) => false,
                }
            }
        }
    };
}

/// The types of inputs with f32 in the place of packed dtypes. Fails on packed inputs outside `packed`, and unless those
/// inside are all stored alike where one is packed.
fn unpack_types(inputs: &[TensorType], packed: Range<usize>) -> Result<Cow<'_, [TensorType]>> {
    // Most calls have no packed input and borrow their types.
    let Some(first) = inputs.iter().find(|ty| ty.dtype.packing().is_some()) else {
        return Ok(Cow::Borrowed(inputs));
    };
    let plain = |(index, ty): (usize, &TensorType)| match ty.dtype.packing() {
        None if packed.contains(&index) => {
            Err(Error::invalid(format!("input {index} is {ty}, but another weight is {first}")))
        }
        None => Ok(ty.clone()),
        Some(_) if !packed.contains(&index) => {
            Err(Error::invalid(format!("input {index} is {ty}: it cannot be packed")))
        }
        Some(_) if ty.dtype != first.dtype => {
            Err(Error::invalid(format!("weights must be packed alike, found {first} and {ty}")))
        }
        // Packed rows have to be whole groups before they can count as `f32`.
        Some(packing) => {
            packing.sections(&ty.sizes(&Symbols::new())?)?;
            Ok(TensorType { dtype: DType::F32, shape: ty.shape.clone() })
        }
    };
    inputs.iter().enumerate().map(plain).collect::<Result<Vec<_>>>().map(Cow::Owned)
}

/// Whether an attribute has its default and is left out of the text form.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

operators! {
    embedding::Embedding,
    rms_norm::RmsNorm,
    layer_norm::LayerNorm,
    linear::Linear,
    rope_angles::RopeAngles,
    rope::Rope,
    append::Append,
    attention::Attention,
    paged_append::PagedAppend,
    paged_attention::PagedAttention,
    paged_recurrence::PagedRecurrence,
    take_rows::TakeRows,
    add::Add,
    mul::Mul,
    lerp::Lerp,
    silu::Silu,
    gelu::Gelu,
    relu::Relu,
    relu_squared::ReluSquared,
    sigmoid::Sigmoid,
    tanh::Tanh,
    softplus::Softplus,
    scale::Scale,
    softcap::Softcap,
    clamp::Clamp,
    columns::Columns,
    concat::Concat,
    rows::Rows,
    patches::Patches,
    merge_squares::MergeSquares,
    last_row::LastRow,
    merge_rows::MergeRows,
    positions::Positions,
    position_scale::PositionScale,
    route::Route,
    expert_linear::ExpertLinear,
    combine::Combine,
    token_shift::TokenShift,
    wkv::Wkv,
    wkv7::Wkv7,
    wkv_bonus::WkvBonus,
    causal_conv::CausalConv,
    selective_scan::SelectiveScan,
    dequantize::Dequantize,
    argmax::Argmax,
    top_k::TopK,
    exp_sums::ExpSums,
    all_reduce::AllReduce,
    all_gather::AllGather,
    add_rms_norm::AddRmsNorm,
    gated_linear::GatedLinear,
    expert_gated_linear::ExpertGatedLinear,
}
