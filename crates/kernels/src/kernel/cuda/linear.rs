//! The product of one row with a weight, or with several at once: `gemv.cu`, with stacks of experts `moe_gemv.cu`, and what they are
//! asked to do.
//!
//! A warp multiplies 16 outputs by a stage of the row on tensor cores. Warps of a team share the row length of a
//! tile; teams of a block share the row itself, which lies in shared memory. Each warp loads its weights through a
//! ring of stages of its own.

mod fill;
mod format;
mod fused;

pub use fused::{plan_added, plan_moe_down, plan_moe_gated, plan_of_norm};

use super::{COPIES, bindings, desc, processors};
use crate::kernel::Request;
use crate::kernel::gemm_problem::{GemmProblem, InputPlaces, StackedExperts};
use crate::kernel::source::{may_be_one, plan_of, single_workgroup, unserved_error, weight_code};
use crate::plan::{Arg, Launch, NodePlan};
use format::{Format, GROUP};
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::{DType, Extent, Op, Result, TensorType};

/// The text for plain products.
const TEXT: &str = include_str!("gemv.cu");
/// The text for stacks of matrices.
const OF_EXPERTS: &str = include_str!("moe_gemv.cu");
/// Outputs of a tile; half as many of a gated product.
const TILE: u32 = 16;
/// Weights that one launch takes at most.
pub const MOST: usize = 3;
/// Slots of a row that a kernel knows, a lane each, and warps of a mixed product, one for each slot and run of the dense weight.
const MOST_SLOTS: u32 = 32;
/// Warps of a mixed product at most.
const MOST_MIXED: u32 = 16;
/// The normalisation that a product's input goes through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InputNorm {
    /// See [`tapml_graph::op::RmsNorm::eps`].
    pub eps: f32,
    /// See [`tapml_graph::op::RmsNorm::offset`].
    pub offset: f32,
    /// Storage of its weights.
    pub dtype: DType,
}

/// What stands beside a product with a stack of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dense {
    /// A gated product of the same input with dense weights of so many outputs, which has an output of its own.
    SharedExpert(u32),
    /// A dense weight, whose rows are so many times as long, on an input of its own. The sum of the slots' results times their
    /// weights and of the dense one times a share is the output.
    Mixed(u32),
}

/// What the kernel is asked to do. It binds, in this order: `x`; of a mixed product that of the dense weight; the weights of `norm`;
/// each weight, of a packed one words, scales and, if it has them, zeros; dense weights; what is chosen of a stack; of a mixed product
/// the slots' weights and the dense one's share; the biases; the residual; the outputs, that of dense weights last.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// Row length of the input and of the weights.
    k: u32,
    /// How all weights are stored.
    format: Format,
    /// Outputs of each weight.
    outputs: Vec<u32>,
    /// Whether there are two weights, of which the first makes the gate of the second.
    gated: bool,
    /// Storage of the biases, if there are some.
    bias: Option<DType>,
    /// Dtype of the input: f16 or f32.
    act: DType,
    /// Dtype of the outputs: f16 or f32.
    out: DType,
    /// The normalisation of the input.
    norm: Option<InputNorm>,
    /// Whether something is added to the result.
    residual: bool,
    /// What is chosen of the weights, if they are stacks.
    stack: Option<StackedExperts>,
    /// What stands beside a stack.
    dense: Option<Dense>,
}

/// A node that is such a product, by its inputs.
#[derive(Clone, Debug)]
pub struct Projection {
    /// What it asks of the kernel.
    pub product: Product,
    /// Its weights.
    pub weights: Vec<usize>,
    /// What is chosen of its weights, if they are stacks.
    pub chosen: Option<usize>,
    /// Its bias.
    pub bias: Option<usize>,
}

impl Projection {
    /// The projection that an operator is at these types, if the kernel can serve it.
    pub fn from_op(op: &Op, inputs: &[TensorType], out: DType) -> Option<Projection> {
        Projection::from_problem(&GemmProblem::from_op(op, inputs)?, out)
    }

    /// As [`Projection::from_op`] with stacks of matrices.
    pub fn of_stack(op: &Op, inputs: &[TensorType], out: DType) -> Option<Projection> {
        // Stacks of numbers of 8 bits keep the portable kernels.
        let asked = GemmProblem::of_stack(op, inputs)?;
        if Format::from_type(asked.weight) == Some(Format::Float) {
            return None;
        }
        Projection::from_problem(&asked, out)
    }

    /// The projection that a product is, if the kernel reads its weights and has no rest at its end.
    fn from_problem(asked: &GemmProblem, out: DType) -> Option<Projection> {
        let format = Format::from_type(asked.weight)?;
        let &GemmProblem { x, gated, k, outputs, stack, .. } = asked;
        let InputPlaces { weights, bias } = asked.places()?;
        let halves = [x.dtype, out].iter().all(|dtype| matches!(dtype, DType::F16 | DType::F32));
        // A tile of a gated product has eight outputs of each weight.
        let tile = if gated { TILE / 2 } else { TILE };
        let few = stack.is_none_or(|s| s.slots <= MOST_SLOTS && s.count > 0 && outputs > 0);
        let fits = k > 0 && format.fits(k) && outputs.is_multiple_of(tile) && few;
        if !halves || !fits || !may_be_one(&x.shape[0]) {
            return None;
        }
        let (outputs, stored) = (vec![outputs], bias.map(|(_, dtype)| dtype));
        let (act, norm, residual) = (x.dtype, None, false);
        let dense = None;
        let product =
            Product { k, format, outputs, gated, bias: stored, act, out, norm, residual, stack, dense };
        let chosen = asked.expert_ids_input();
        Some(Projection { product, weights, chosen, bias: bias.map(|(at, _)| at) })
    }
}

impl Product {
    /// One launch for several products of one input; `None` if they differ in more than their outputs.
    pub fn fuse(products: &[&Product]) -> Option<Product> {
        let [first, rest @ ..] = products else { return None };
        if rest.is_empty() {
            return Some((*first).clone());
        }
        let outputs = products.iter().flat_map(|p| p.outputs.clone()).collect();
        // Everything but the outputs has to be equal.
        let alike = |p: &&Product| Product { outputs: first.outputs.clone(), ..(**p).clone() } == **first;
        let fits = rest.iter().all(alike) && !first.gated && products.len() <= MOST;
        fits.then_some(Product { outputs, ..(*first).clone() })
    }

    /// With its input normalised first.
    pub fn of_normalised(self, norm: InputNorm) -> Product {
        Product { norm: Some(norm), ..self }
    }

    /// With something of the same type added to its result.
    pub fn added_to(self) -> Product {
        Product { residual: true, ..self }
    }

    /// A gated product with a stack and one of the same input with dense weights, in one launch; `None` if they do not go together.
    pub fn with_shared_expert(self, dense: &Product) -> Option<Product> {
        let [outputs] = dense.outputs[..] else { return None };
        // The dense weights may have other outputs; storage and row length are the stack's.
        let alike = Product { outputs: self.outputs.clone(), stack: self.stack, ..dense.clone() } == self;
        let shared = self.stack.is_some_and(|stack| stack.shared) && self.gated && self.bias.is_none();
        (alike && shared).then_some(Product { dense: Some(Dense::SharedExpert(outputs)), ..self })
    }

    /// A product with a stack, whose results are added up, and one with a dense weight on an input of its own, in one
    /// launch; `None` if they do not go together.
    pub fn mixed_with(self, dense: &Product) -> Option<Product> {
        let stack = self.stack.filter(|stack| !stack.shared)?;
        let runs = dense.k / self.k;
        let alike = Product { k: self.k, stack: self.stack, ..dense.clone() } == self;
        let plain =
            !self.gated && self.bias.is_none() && self.act == self.out && dense.k.is_multiple_of(self.k);
        let fits = runs > 0 && stack.slots + runs <= MOST_MIXED;
        (alike && plain && fits).then_some(Product { dense: Some(Dense::Mixed(runs)), ..self })
    }

    /// The kernel and its grid; `None` if the device cannot run it.
    ///
    /// The grid has at most as many blocks as run at once: each takes tiles until none is left.
    pub fn kernel(&self, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
        if info.features.cuda < Some(COPIES) {
            return None;
        }
        let norm = self.norm.map_or(Some(0), |norm| weight_code(norm.dtype).ok())?;
        let bias = self.bias.map_or(Some(0), |dtype| weight_code(dtype).ok())?;
        let room = self.room(info.limits.max_workgroup_memory)?;
        let (fill, depth, memory) = (room.fill, room.depth, room.memory);
        let warps = self.warps(fill);
        let weights = if self.gated { 2 } else { self.outputs.len() };
        let biases = if self.bias.is_some() { self.outputs.len() } else { 0 };
        // Weights, and what else is read and written.
        let [dense, more, results] = match self.dense {
            None => [0, 0, 0],
            Some(Dense::SharedExpert(_)) => [2, 0, 1],
            Some(Dense::Mixed(_)) => [1, 3, 0],
        };
        let read = 1
            + usize::from(self.norm.is_some())
            + self.format.arrays() * (weights + dense)
            + usize::from(self.stack.is_some())
            + more
            + biases
            + usize::from(self.residual);
        let [name, file, text] = match self.stack {
            None => ["gemv/cuda", "cuda/gemv.cu", TEXT],
            Some(_) => ["moe_gemv/cuda", "cuda/moe_gemv.cu", OF_EXPERTS],
        };
        let mut desc = desc(info, name, file, text, fill.teams * warps * 32, memory);
        desc.bindings = bindings(read, self.outputs.len() + results);
        let flag = |flag: bool| f64::from(u8::from(flag));
        // Weights that there are not have no outputs.
        let output = |at: usize| f64::from(self.outputs.get(at).copied().unwrap_or(0));
        let (group, zeros) = self.format.groups();
        let (eps, offset) = self.norm.map_or((0.0, 0.0), |norm| (norm.eps, norm.offset));
        desc.constants = [
            ("K", f64::from(self.k)),
            ("TEAMS", f64::from(fill.teams)),
            ("WARPS", f64::from(warps)),
            ("DEPTH", f64::from(depth)),
            ("FORMAT", f64::from(self.format.code())),
            ("GROUP", f64::from(group)),
            ("ZEROS", flag(zeros)),
            ("PLANES", f64::from(self.limbs())),
            ("PARTS", self.outputs.len() as f64),
            ("O0", output(0)),
            ("O1", output(1)),
            ("O2", output(2)),
            ("GATED", flag(self.gated)),
            ("NORM", flag(self.norm.is_some())),
            ("EPS", f64::from(eps)),
            ("OFFSET", f64::from(offset)),
            ("NORM_DTYPE", f64::from(norm)),
            ("BIAS", flag(self.bias.is_some())),
            ("B_DTYPE", f64::from(bias)),
            ("RESIDUAL", flag(self.residual)),
            ("TOGETHER", f64::from(self.tiles_per_sum(fill))),
            // A bound for the compiler's use of registers.
            ("MIN_BLOCKS", 1.0),
            ("ACT_F32", flag(self.act == DType::F32)),
            ("OUT_F32", flag(self.out == DType::F32)),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .to_vec();
        if let Some(StackedExperts { count, slots, shared }) = self.stack {
            let [beside, mixed] = match self.dense {
                None => [0, 0],
                Some(Dense::SharedExpert(outputs)) => [outputs, 0],
                Some(Dense::Mixed(runs)) => [0, runs],
            };
            let stack = [("EXPERTS", count), ("SLOTS", slots), ("SHARED", u32::from(shared))];
            let mut constants = stack.to_vec();
            let split = if mixed > 0 { self.split() } else { 1 };
            constants.extend([("BESIDE", beside), ("MIXED", mixed), ("SPLIT", split)]);
            desc.constants
                .extend(constants.into_iter().map(|(name, value)| (name.to_string(), f64::from(value))));
        }
        let blocks = self.tiles().div_ceil(fill.teams).min(fill.blocks * processors(info));
        Some((desc, [Extent::from_dim(u64::from(blocks)), single_workgroup(), single_workgroup()]))
    }

    /// Parts that elements of `x` are taken in: digits of the base 256 beside whole numbers, else numbers of the weights' type.
    /// They are what PLANES counts in the texts.
    fn limbs(&self) -> u32 {
        let wide = u32::from(self.act == DType::F32);
        match self.format {
            Format::F16 | Format::Float => 1 + wide,
            Format::BF16 => 2 + wide,
            Format::Four { .. } | Format::Eight => 3 + wide,
        }
    }

    /// Bytes of shared memory that hold `x`: with digits a scale of each 32 elements, and beside zero points their sums.
    fn shared_bytes(&self) -> u32 {
        let elements = self.rows() * self.format.stages(self.k) * self.format.stage().0;
        match self.format {
            Format::F16 | Format::BF16 | Format::Float => elements * self.limbs() * 2,
            Format::Four { .. } | Format::Eight => {
                let sums = if self.format.groups().1 { 8 } else { 0 };
                elements * self.limbs() + elements / GROUP * (4 + sums)
            }
        }
    }

    /// Rows of `x`: a stack's slots can have one each.
    /// Those of a mixed product's dense input count too, in pieces of the stack's row length.
    fn rows(&self) -> u32 {
        let slots = self.stack.map_or(1, |stack| if stack.shared { 1 } else { stack.slots });
        slots + if let Some(Dense::Mixed(runs)) = self.dense { runs } else { 0 }
    }

    /// Tiles of all outputs.
    /// A mixed product adds its slots up, so that they have no tiles of their own.
    fn tiles(&self) -> u32 {
        let outputs = self.outputs.iter().sum::<u32>();
        let slots = self.stack.map_or(1, |stack| stack.slots);
        let all = match self.dense {
            None => outputs.saturating_mul(slots),
            Some(Dense::SharedExpert(more)) => outputs.saturating_mul(slots).saturating_add(more),
            Some(Dense::Mixed(_)) => outputs,
        };
        all / if self.gated { TILE / 2 } else { TILE }
    }

    /// The longest chain of additions: the stages of a warp, the 16 products of each step, the warps. Products of whole
    /// numbers are exact; two roundings make a number of their sum.
    pub fn chain(&self) -> u32 {
        let step = match self.format {
            Format::F16 | Format::BF16 => TILE,
            // Four products of 16 elements, one after the other.
            Format::Float => TILE + 4,
            Format::Four { .. } | Format::Eight => 4,
        };
        // Which way of filling the chip is taken depends on the device: the longest chain of both counts.
        let chain = |fill| self.steps(fill) * 2 + step + self.warps(fill);
        self.fills().into_iter().map(chain).max().unwrap_or(step)
    }
}

/// The plan of a product of one row.
pub fn plan(request: &Request) -> Result<NodePlan> {
    plan_projection(request, Projection::from_op(request.op, request.inputs, request.outputs[0].dtype))
}

/// The plan of a product of one row with the matrices of chosen experts.
pub fn plan_stack(request: &Request) -> Result<NodePlan> {
    plan_projection(request, Projection::of_stack(request.op, request.inputs, request.outputs[0].dtype))
}

/// The plan of a node that is such a product.
fn plan_projection(request: &Request, found: Option<Projection>) -> Result<NodePlan> {
    let projection = found.filter(|_| request.binds_whole()).ok_or_else(|| unserved_error(request))?;
    let mut args = request.args(&[0])?;
    args.extend(request.args(&projection.weights)?);
    args.extend(projection.chosen.into_iter().chain(projection.bias).map(Arg::whole_input));
    args.push(Arg::Output(0));
    projection.product.plan(request, args, 0)
}

impl Product {
    /// The plan of a launch with these arguments, whose own chain of additions is so much longer.
    fn plan(&self, request: &Request, mut args: Vec<Arg>, more: u32) -> Result<NodePlan> {
        let found = self.kernel(request.info).filter(|_| request.binds_whole());
        let (desc, groups) = found.ok_or_else(|| unserved_error(request))?;
        args.push(Arg::Symbols);
        Ok(plan_of(Launch { desc, args, groups }, self.chain() + more))
    }
}
