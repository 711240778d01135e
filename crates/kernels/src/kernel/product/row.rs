//! Products of one row: `row.wgsl`, and what it is asked to do. One launch serves one product, several of one input, or
//! a gated one, with a normalisation in front or without. A subgroup takes four columns at a time, so that workgroups
//! meet twice only, however much they do.
//!
//! Such products read each weight a single time, so that memory bandwidth bounds their speed. The row is brought to
//! workgroup memory, then subgroups stream through the weights without waiting for each other.

mod sizes;
mod text;

use crate::kernel::Request;
use crate::kernel::body::{FusedBody, Normalised};
use crate::kernel::gemm_problem::{GemmProblem, InputPlaces};
use crate::kernel::source::{
    KernelSource, LaunchBuilder, may_be_one, plan_of, single_workgroup, unserved_error, weight_code,
};
use crate::plan::{Arg, Launch, NodePlan, Scratch};
pub use sizes::MOST;
use sizes::{ITEMS, LANES, POOLS, ROW_SIZES};
use tapml_device::DeviceInfo;
use tapml_graph::packing::Code;
use tapml_graph::{DType, Extent, Op, Packing, Result, TensorType};
use text::RowShape;

/// Name of the kernel in messages of a device.
const NAME: &str = "product/row";
/// Parts of quads that are worth making, so that a large GPU has enough of them.
const SPREAD: u32 = 2048;
/// Workgroups that a large GPU runs at once: more of them bring the row to workgroup memory more often.
const WORKGROUPS: u32 = 512;
/// Elements of a row from which on bringing it there, once for each workgroup, is what takes long.
const LONG: u32 = 8192;
/// Lanes that make integers of a row together.
const TOGETHER: u32 = 4;
/// Lanes of a subgroup below which its share of a quad is long: the kernel is not taken then.
const LEAST: u32 = 16;
/// The least size of a subgroup that a share of a row is reckoned by.
/// With fewer loads for each part, some lanes would have none.
const SUBGROUP: u32 = 32;

/// How weights are stored.
/// One launch reads weights of one format alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// f16 or bf16, two in a word.
    Plain(DType),
    /// Words with scales of f16 and without zero points.
    Packed(Packing),
}

impl Format {
    /// The format of a weight of this type; `None` if the kernel does not read it.
    fn from_type(weight: &TensorType) -> Option<Format> {
        match weight.dtype {
            DType::F16 | DType::BF16 => Some(Format::Plain(weight.dtype)),
            DType::Packed(packing) if !packing.zeros && packing.code.info().scale == DType::F16 => {
                Some(Format::Packed(packing))
            }
            _ => None,
        }
    }

    /// Elements of 16 bytes.
    fn load(self) -> u32 {
        match self {
            Format::Plain(_) => 8,
            Format::Packed(packing) => 4 * packing.per_word(),
        }
    }
}

/// The normalisation that a product's input goes through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InputNorm {
    /// See [`tapml_graph::op::RmsNorm::eps`].
    pub eps: f32,
    /// See [`tapml_graph::op::RmsNorm::offset`].
    pub offset: f32,
    /// Storage of its weights.
    pub dtype: DType,
    /// Whether it is that of a sum, which is stored too.
    pub of_sum: bool,
}

/// What the kernel is asked to do. It binds, in this order: `x`; the other term of a sum; the weights of `norm`; each
/// weight, of a packed one words and scales; the biases; the sum; the outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// Row length of the input and of the weights; a multiple of [`Format::load`].
    k: u32,
    /// How all weights are stored.
    format: Format,
    /// Outputs of each weight.
    /// Of a gated product, one number for both weights.
    outputs: Vec<u32>,
    /// Whether there are two weights, of which the first makes the gate of the second.
    gated: bool,
    /// Storage of the biases, if there are some; then each weight has one.
    bias: Option<DType>,
    /// Dtype of the row: f16 or f32.
    act: DType,
    /// Dtype of the results: f16 or f32.
    out: DType,
    /// What is done to the row before it is multiplied.
    norm: Option<InputNorm>,
}

/// A node that is such a product, by its inputs.
#[derive(Clone, Debug)]
pub struct Projection {
    /// What it asks of the kernel.
    pub product: Product,
    /// Its weights.
    pub weights: Vec<usize>,
    /// Its bias.
    pub bias: Option<usize>,
}

impl Projection {
    /// The projection that an operator is at these types, if the kernel can serve it.
    pub fn from_op(op: &Op, inputs: &[TensorType], out: DType) -> Option<Projection> {
        let asked = GemmProblem::from_op(op, inputs)?;
        let GemmProblem { x, weight, gated, k, outputs, .. } = asked;
        let format = Format::from_type(weight)?;
        let InputPlaces { weights, bias } = asked.places()?;
        let unit = asked.packing().map_or(8, |packing| packing.group);
        let whole = k > 0 && k.is_multiple_of(format.load()) && unit.is_multiple_of(format.load());
        let floats = [x.dtype, out].iter().all(|dtype| matches!(dtype, DType::F16 | DType::F32));
        if !whole || !floats || !may_be_one(&x.shape[0]) {
            return None;
        }
        let (outputs, stored) = (vec![outputs], bias.map(|(_, dtype)| dtype));
        let product = Product { k, format, outputs, gated, bias: stored, act: x.dtype, out, norm: None };
        Some(Projection { product, weights, bias: bias.map(|(at, _)| at) })
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
        // Everything but the outputs has to be equal, the storage of biases included.
        let alike = |p: &&Product| Product { outputs: first.outputs.clone(), ..(**p).clone() } == **first;
        let fits = rest.iter().all(alike) && !first.gated && products.len() <= MOST;
        fits.then_some(Product { outputs, ..(*first).clone() })
    }

    /// With its input normalised first.
    pub fn of_normalised(self, norm: InputNorm) -> Product {
        Product { norm: Some(norm), ..self }
    }

    /// How many weights there are.
    fn weights(&self) -> usize {
        if self.gated { 2 } else { self.outputs.len() }
    }

    /// The launch with these arguments in the order of the bindings.
    /// `None` if the device cannot hold the row in workgroup memory, or there are too few arguments.
    fn launch(&self, info: &DeviceInfo, mut args: impl Iterator<Item = Arg>) -> Option<Launch> {
        let shape = self.shape(info)?;
        let mut kernel = KernelSource {
            weights: true,
            math: self.gated,
            lanes: LANES,
            ..KernelSource::flat(NAME, "", "")
        };
        kernel.workgroup_memory = shape.memory();
        let mut launch = kernel.launch(self.act, self.out).ok()?;
        for kind in shape.bindings() {
            launch = launch.bind(kind, args.next()?);
        }
        let share = self.share();
        // The text with integers takes rows of either dtype by itself.
        if !shape.integer_row {
            launch = launch.set("X_WIDE", u32::from(self.act == DType::F32));
        }
        let launch = self.constants(launch)?.set("QUADS", share.vec4s).set("SPLIT", share.split);
        let groups = [Extent::from_dim(u64::from(share.groups)), single_workgroup(), single_workgroup()];
        let mut launch = launch.subgroups().groups(groups);
        shape.text().put_into(&mut launch.desc.source);
        Some(launch)
    }

    /// Sets the constants of the text: sizes, storage, and those of the norm.
    fn constants(&self, launch: LaunchBuilder) -> Option<LaunchBuilder> {
        let mut launch = launch.set("K", self.k);
        for (name, at) in ["O0", "O1", "O2"].into_iter().zip(0..self.weights()) {
            launch = launch.set(name, if self.gated { self.outputs[0] } else { self.outputs[at] });
        }
        launch = match self.format {
            Format::Plain(dtype) => launch.weight_dtype(dtype).ok()?,
            Format::Packed(packing) => launch.with_packing(packing).set("LOAD", self.format.load()),
        };
        if let Some(bias) = self.bias {
            launch = launch.set("B_DTYPE", weight_code(bias).ok()?);
        }
        Some(match self.norm {
            Some(InputNorm { eps, offset, dtype, .. }) => {
                launch.set("EPS", eps).set("OFFSET", offset).set("NORM_DTYPE", weight_code(dtype).ok()?)
            }
            None => launch,
        })
    }

    /// How the columns are shared out.
    ///
    /// Parts of a quad give a large GPU more work at a time, but each needs enough loads for a subgroup. Large
    /// numbers of workgroups are avoided, because every one of them brings the row to its memory.
    fn share(&self) -> Share {
        let loads = self.k / self.format.load();
        let quads: u32 = self.outputs.iter().map(|o| o.div_ceil(4)).sum();
        let quads = if self.gated { 2 * quads } else { quads };
        let packed = matches!(self.format, Format::Packed(_));
        let most = if packed { ITEMS / 2 } else { ITEMS };
        let workgroups = match (self.k >= LONG, packed) {
            (true, _) => WORKGROUPS / 4,
            (false, true) => WORKGROUPS * 3 / 4,
            (false, false) => WORKGROUPS,
        };
        let fits = |split: &u32| quads.saturating_mul(*split) <= SPREAD && loads / split >= SUBGROUP;
        let fitting = || [8, 4, 2].into_iter().filter(fits);
        // Parts whose loads are whole rounds of a subgroup leave no lane idle; else the largest split that fits.
        let even = fitting().find(|split| loads.is_multiple_of(split * SUBGROUP));
        let split = even.or_else(|| fitting().next()).unwrap_or(1);
        let items = (quads * split).div_ceil(workgroups).next_multiple_of(8).min(most);
        // A gate and what it lets pass stay together.
        let each = (items / split).next_multiple_of(if self.gated { 2 } else { 1 });
        Share { vec4s: each, split, groups: quads.div_ceil(each) }
    }

    /// The text to use. The row becomes integers where that is exact and fits, and stays as it is otherwise.
    fn shape(&self, info: &DeviceInfo) -> Option<RowShape> {
        let shape = RowShape {
            packed: matches!(self.format, Format::Packed(_)),
            integer_row: false,
            norm: self.norm.map(|norm| norm.of_sum),
            weights: self.weights(),
            gated: self.gated,
            bias: self.bias.is_some(),
            pool: 0,
        };
        // Pools have a few sizes only, so that devices compile few texts.
        let octets = (self.k / 8).next_multiple_of(8);
        let planes = ROW_SIZES.into_iter().find(|pool| octets <= *pool);
        let planes = planes.map(|pool| RowShape { integer_row: true, pool, ..shape });
        // Products of whole numbers alone are exact.
        let whole = matches!(self.format, Format::Packed(packing) if packing.code != Code::E4m3);
        let able = whole && info.features.subgroups.is_some_and(|(least, _)| least >= TOGETHER);
        let fits = |s: &RowShape| s.packed && able && s.memory() <= info.limits.max_workgroup_memory;
        let units = (self.k * self.act.size() as u32).div_ceil(16).next_multiple_of(8);
        let pool = POOLS.into_iter().find(|pool| units <= *pool);
        planes.filter(fits).or(pool.map(|pool| RowShape { pool, ..shape }))
    }

    /// The longest chain of additions on a device with such subgroups: those of a lane, the subgroup, the parts.
    /// A narrower subgroup means more loads for each lane: the narrowest that the device has counts.
    pub fn chain(&self, info: &DeviceInfo) -> u32 {
        let least = info.features.subgroups.map_or(SUBGROUP, |(least, _)| least).max(1);
        let loads = (self.k / self.format.load()).div_ceil(self.share().split).div_ceil(least);
        let own = match self.format {
            Format::Plain(_) => 2 * loads + 4,
            // Integers add up exactly; two additions join their digits.
            Format::Packed(_) if self.shape(info).is_some_and(|shape| shape.integer_row) => loads + 2,
            Format::Packed(_) => loads + self.format.load(),
        };
        own + least.ilog2() + self.share().split
    }
}

/// How columns are shared out over workgroups.
struct Share {
    /// Quads of a workgroup.
    vec4s: u32,
    /// Parts of a quad.
    split: u32,
    /// Workgroups.
    groups: u32,
}

/// Every text.
/// Constants are not put in.
pub fn texts() -> impl Iterator<Item = String> {
    text::all().into_iter().map(|shape| shape.text().into_text())
}

/// The plan of a product of one row.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let found = Projection::from_op(request.op, request.inputs, request.outputs[0].dtype);
    let projection = found.filter(|_| fits(request)).ok_or_else(|| unserved_error(request))?;
    let Projection { product, weights, bias } = projection;
    let weights = request.args(&weights)?.into_iter();
    let args = [Arg::whole_input(0)].into_iter().chain(weights);
    // The order is that of `RowShape::bindings`.
    let args = args.chain(bias.map(Arg::whole_input)).chain([Arg::Output(0)]);
    let launch = product.launch(request.info, args).ok_or_else(|| unserved_error(request))?;
    Ok(plan_of(launch, product.chain(request.info)))
}

/// Whether the device's subgroups are wide enough, and every weight is bound as a whole.
fn fits(request: &Request) -> bool {
    let lanes = request.info.features.subgroups.map_or(0, |(_, most)| most);
    lanes >= LEAST && request.binds_whole()
}

/// The plan of the projections of one normalised row: see [`tapml_graph::fusion`], `norm_linear`.
pub fn plan_of_norm(request: &Request) -> Result<NodePlan> {
    let body = FusedBody::of_request(request)?;
    let of = Normalised::from_body(&body)?;
    let products: Option<Vec<Projection>> = of
        .products
        .iter()
        .map(|node| Projection::from_op(&node.op, &body.types(node), body.ty(node.outputs[0]).dtype))
        .collect();
    let products = products.filter(|_| fits(request)).ok_or_else(|| unserved_error(request))?;
    let all: Vec<&Product> = products.iter().map(|projection| &projection.product).collect();
    let norm = InputNorm { eps: of.eps, offset: of.offset, dtype: of.dtype, of_sum: of.sum.is_some() };
    let product = Product::fuse(&all).ok_or_else(|| unserved_error(request))?.of_normalised(norm);
    let mut args = body.read_all(of.terms.iter().copied().chain([of.weight]))?;
    for (node, projection) in of.products.iter().zip(&products) {
        args.extend(body.read_weights(projection.weights.iter().map(|&k| node.inputs[k]))?);
    }
    let biases = of.products.iter().zip(&products);
    args.extend(body.read_all(biases.filter_map(|(node, of)| Some(node.inputs[of.bias?])))?);
    let mut scratch = Vec::new();
    if let Some(sum) = of.sum {
        // The kernel stores the sum in any case: where nobody else reads it, it goes to scratch memory.
        args.push(body.write(sum).unwrap_or(Arg::Scratch(0)));
        if body.output(sum).is_none() {
            let bytes = u64::from(product.k) * product.act.size() as u64;
            scratch.push(Scratch::Temporary(Extent::from_dim(bytes)));
        }
    }
    for node in &of.products {
        args.push(body.write(node.outputs[0])?);
    }
    body.expect_outputs(&args)?;
    let launch = product.launch(request.info, args.into_iter()).ok_or_else(|| unserved_error(request))?;
    // The sum of squares of the norm comes before the products: a workgroup adds it up and joins it in a tree.
    let chain = product.chain(request.info) + product.k.div_ceil(LANES) + LANES.ilog2();
    Ok(NodePlan { scratch, ..plan_of(launch, chain) })
}
