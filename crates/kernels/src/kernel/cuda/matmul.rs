//! Products of many rows on the tensor cores of Hopper chips: `gemm_hopper.cu`, and what it is asked to do.
//!
//! One group of warps brings tiles to shared memory by the tensor memory accelerator (TMA), through tensor maps; the
//! other groups multiply them with `wgmma`. The grid is as large as the chip, and blocks take tiles one after the
//! other.

mod skinny;

use super::{HOPPER, bindings, desc, linear::MOST, processors};
use crate::axis::Axis;
use crate::kernel::Request;
use crate::kernel::body::FusedBody;
use crate::kernel::gemm_problem::{GemmProblem, InputPlaces};
use crate::kernel::source::{factors, plan_of, single_workgroup, unserved_error, weight_code};
use crate::plan::{Arg, Launch, NodePlan};
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::packing::Code;
use tapml_graph::{DType, Dim, Extent, Node, Op, Packing, Result, TensorType};

/// The text, whose headers are put in front of it.
const TEXT: &str = include_str!("gemm_hopper.cu");
/// Rows of a tile, unless a setting says that it has half as many.
const ROWS: u32 = 128;
/// Rows of weights that a group of four warps takes, and how many such groups a block can have.
const UNIT: u32 = 64;
/// In the order in which equal costs are decided.
const GROUPS: [u32; 3] = [2, 3, 1];
/// What a tile costs beside its products, in rows of weights.
const OVERHEAD: u32 = 20;
/// Rows of a run that tiles are chosen for, unless a setting says otherwise.
const USUAL_ROWS: u32 = 512;
/// Blocks of a cluster.
/// Both bring a half of the rows, for both of them.
const CLUSTER: u32 = 2;
/// Threads of a group.
/// Four warps, as `wgmma` takes them.
const THREADS: u32 = 128;
/// Elements along K of a stage.
const STEP: u32 = 64;
/// Elements of an f16 row whose products the tensor cores add up. They round toward zero: sums of a row of 4096 elements as
/// a whole were off up to 1.6 times as far as the verdict allows.
const RUN: u32 = 256;
/// Outputs up to which sums are made in slices.
/// 64 tiles of [`UNIT`] outputs: a cluster each, of 66 on the largest chips.
const SLICED_OUTPUTS: u32 = 4096;
/// Steps along K from which on they are.
const SLICED_STEPS: u32 = 16;
/// Elements that share a scale.
const GROUP: u32 = 32;
/// Bytes of a row of a stage: [`STEP`] elements of f16.
const STEP_BYTES: u32 = 2 * STEP;
/// Bytes of shared memory that the text itself declares, or loses by alignment.
const RESERVED_BYTES: u32 = 3 << 10;
/// Stages of the ring at most, and at least.
const DEPTH: u32 = 16;
/// Stages at least: with fewer, the kernel is not taken.
const SHALLOWEST: u32 = 4;

/// Products of one input with a weight, with two and a gate, or with up to [`MOST`]. The kernel binds, in this order: `x`;
/// each weight, of a packed one words and scales; the biases; the outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Matmul {
    /// Row length of input and weights.
    k: u32,
    /// How all weights are stored.
    format: Format,
    /// Outputs of each weight.
    outputs: Vec<u32>,
    /// Whether there are two weights, of which the first makes the gate of the second.
    gated: bool,
    /// Storage of the biases, if there are some.
    bias: Option<DType>,
    /// Dtype of the outputs.
    out: DType,
    /// Number of rows, affine in the symbols.
    rows: Dim,
    /// Rows of a run that tiles are chosen for.
    usual: u32,
    /// Rows of a tile.
    tile: u32,
    /// Whether groups add up their first products of f16 in runs of different lengths.
    stagger: bool,
    /// Slices of the weights' rows that are added up last, at most.
    slices: u32,
}

/// A node that is such a product, by its inputs.
#[derive(Clone, Debug)]
pub struct Projection {
    /// What it asks of the kernel.
    pub product: Matmul,
    /// Its weights.
    pub weights: Vec<usize>,
    /// Its bias.
    pub bias: Option<usize>,
}

impl Projection {
    /// The product that an operator is at these types, if the kernel can serve it.
    pub fn from_op(op: &Op, inputs: &[TensorType], out: DType) -> Option<Projection> {
        let asked = GemmProblem::from_op(op, inputs)?;
        let GemmProblem { x, weight, gated, k, outputs, .. } = asked;
        let format = Format::from_type(weight)?;
        let InputPlaces { weights, bias } = asked.places()?;
        let rows = x.shape.first()?;
        // Boxes of the tensor maps are as wide as a stage.
        let fits = k > 0 && k.is_multiple_of(STEP) && outputs.is_multiple_of(8);
        let taken =
            x.dtype == DType::F16 && matches!(out, DType::F16 | DType::F32) && !(gated && out == DType::F32);
        // One row is the business of the kernels for decoding.
        let many = rows.as_const() != Some(1) && factors(rows).is_ok();
        if !fits || !taken || !many || outputs == 0 {
            return None;
        }
        let (outputs, stored) = (vec![outputs], bias.map(|(_, dtype)| dtype));
        let (rows, usual, tile) = (rows.clone(), USUAL_ROWS, ROWS);
        let (bias_dtype, stagger, slices) = (stored, true, 1);
        let product =
            Matmul { k, format, outputs, gated, bias: bias_dtype, out, rows, usual, tile, stagger, slices };
        Some(Projection { product, weights, bias: bias.map(|(at, _)| at) })
    }
}

/// How weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// Elements of f16, as they are.
    F16,
    /// In groups of [`GROUP`] elements.
    Packed(Code),
}

/// The weights of a product, as tensor maps take them.
struct MappedWeights {
    /// How many there are.
    count: usize,
    /// Arrays of each.
    arrays: usize,
    /// Bytes of an element of a map, elements of a row, and the width of a box.
    box_row: [u32; 3],
}

impl Format {
    /// Bytes of a row of weights in a stage.
    fn step_bytes(self) -> u32 {
        STEP * self.bits().unwrap_or(16) / 8
    }

    /// The format of a weight of this type; `None` if the kernel does not read it.
    fn from_type(weight: &TensorType) -> Option<Format> {
        let Packing { code, group, zeros } = match weight.dtype {
            DType::F16 => return Some(Format::F16),
            other => other.packing()?,
        };
        let read = matches!(code, Code::Int4 | Code::Int8 | Code::E4m3) && group == GROUP && !zeros;
        read.then_some(Format::Packed(code))
    }

    /// Bits of an element of a packed weight.
    fn bits(self) -> Option<u32> {
        match self {
            Format::F16 => None,
            Format::Packed(code) => Some(code.info().bits),
        }
    }
}

impl Matmul {
    /// One launch for several products of one input; `None` if they differ in more than their outputs.
    pub fn fuse(products: &[&Matmul]) -> Option<Matmul> {
        let [first, rest @ ..] = products else { return None };
        let outputs = products.iter().flat_map(|p| p.outputs.clone()).collect();
        let alike = |p: &&Matmul| Matmul { outputs: first.outputs.clone(), ..(**p).clone() } == **first;
        let fits = rest.iter().all(alike) && !first.gated && products.len() <= MOST;
        fits.then_some(Matmul { outputs, ..(*first).clone() })
    }

    /// The kernel and its grid; `None` if the device cannot run it.
    ///
    /// Shared memory that is left beside results and what the text declares is filled with stages, up to [`DEPTH`].
    pub fn kernel(&self, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
        if info.features.cuda != Some(HOPPER) {
            return None;
        }
        let blocks = blocks(info);
        let groups = self.groups(blocks);
        let stage = self.tile * STEP_BYTES + groups * UNIT * self.format.step_bytes();
        let results = self.results(groups);
        let room = info.limits.max_workgroup_memory.saturating_sub(RESERVED_BYTES + results);
        let stages = (room / stage).min(DEPTH);
        if stages < SHALLOWEST {
            return None;
        }
        let [n, p, s, constant] = factors(&self.rows).ok()?;
        let mapped = self.mapped_weights();
        let biases = if self.bias.is_some() { self.outputs.len() } else { 0 };
        let skinny = self.skinny(blocks, groups, stages * stage + results);
        let multiplying = groups.max(skinny.warps().div_ceil(THREADS / 32));
        // One group more than multiply: it only loads. Boxes of TMA begin at multiples of 1024 bytes.
        let (threads, memory) = ((multiplying + 1) * THREADS, stages * stage + results + 1024);
        let mut desc = desc(info, "gemm_hopper/cuda", "cuda/gemm_hopper.cu", TEXT, threads, memory);
        desc.bindings = bindings(1 + mapped.count * mapped.arrays + biases, self.outputs.len());
        let output = |at: usize| self.outputs.get(at).copied().unwrap_or(0);
        desc.constants = [
            ("K", self.k),
            ("TILE", self.tile),
            ("SLICES", self.slices()),
            ("GROUPS", groups),
            ("THREADS", threads),
            ("STAGES", stages),
            ("FORMAT", self.format.bits().unwrap_or(1)),
            ("FLOAT", u32::from(self.format == Format::Packed(Code::E4m3))),
            ("RUN", RUN / STEP),
            ("STAGGER", u32::from(self.stagger)),
            ("PARTS", self.outputs.len() as u32),
            ("O0", output(0)),
            ("O1", output(1)),
            ("O2", output(2)),
            ("GATED", u32::from(self.gated)),
            ("BIAS", u32::from(self.bias.is_some())),
            ("B_DTYPE", self.bias.map_or(Some(0), |dtype| weight_code(dtype).ok())?),
            ("OUT_F32", u32::from(self.out == DType::F32)),
            ("BLOCKS", blocks),
            ("ROWS_N", n),
            ("ROWS_P", p),
            ("ROWS_S", s),
            ("ROWS_C", constant),
        ]
        .map(|(name, value)| (name.to_string(), f64::from(value)))
        .to_vec();
        // Half of the rows of a tile: the other block of the cluster brings the other half.
        desc.constants.extend(map(0, 0, [2, self.k, STEP, self.tile / CLUSTER]));
        let [bytes, row, width] = mapped.box_row;
        let height = if self.gated && self.format.bits().is_some() { UNIT / 2 * groups } else { UNIT };
        let size = [bytes, row, width, height];
        desc.constants.extend((0..mapped.count).flat_map(|i| map(i + 1, 1 + i * mapped.arrays, size)));
        desc.constants.extend(self.skinny_constants(&skinny, &mapped));
        desc.check_limits(info).ok()?;
        Some((desc, [Extent::from_dim(u64::from(blocks)), single_workgroup(), single_workgroup()]))
    }

    /// How tensor maps take the weights: packed words as 32-bit elements, 32 weights in as many words as an element has bits.
    fn mapped_weights(&self) -> MappedWeights {
        let count = if self.gated { 2 } else { self.outputs.len() };
        match self.format.bits() {
            None => MappedWeights { count, arrays: 1, box_row: [2, self.k, STEP] },
            Some(bits) => {
                MappedWeights { count, arrays: 2, box_row: [4, self.k / 32 * bits, STEP / 32 * bits] }
            }
        }
    }

    /// The groups of a block of so many: as many as end soonest in a run of the usual rows.
    fn groups(&self, blocks: u32) -> u32 {
        // Each of two groups takes a weight.
        if self.gated && self.format.bits().is_none() {
            return 2;
        }
        let of_unit = if self.gated { UNIT / 2 } else { UNIT };
        let units: u32 = self.outputs.iter().map(|o| o.div_ceil(of_unit)).sum();
        // Threads of three groups have no registers left for sums of slices in f16, nor is there room for them in shared memory.
        let fits = |groups: &u32| *groups < 3 || self.slices() == 1 || self.format.bits().is_some();
        // Rounds of tiles over the clusters, times what a tile takes.
        let cost = |&groups: &u32| {
            let tiles = units.div_ceil(groups).div_ceil(CLUSTER) * self.usual.div_ceil(self.tile);
            u64::from(tiles.div_ceil(blocks / CLUSTER)) * u64::from(groups * UNIT + OVERHEAD)
        };
        GROUPS.into_iter().filter(fits).min_by_key(cost).unwrap_or(2)
    }

    /// Slices of the weights' rows that are added up last: where there are so few outputs that two blocks share a tile.
    ///
    /// It depends on the weights alone, so that a row's sums are the same beside any number of rows.
    fn slices(&self) -> u32 {
        let steps = self.k / STEP;
        let few = !self.gated && self.outputs.iter().sum::<u32>() <= SLICED_OUTPUTS;
        // A slice of f16 weights has whole pairs of runs.
        let of_two = if self.format.bits().is_some() { 4 } else { 4 * RUN / STEP };
        let even = steps >= SLICED_STEPS && steps.is_multiple_of(of_two);
        if few && even { self.slices } else { 1 }
    }

    /// Bytes of shared memory that results go through, or sums of slices.
    fn results(&self, groups: u32) -> u32 {
        if self.slices() > 1 && (self.tile < ROWS || self.format.bits().is_some()) {
            return groups * self.tile * UNIT * 4;
        }
        match (self.gated, self.format.bits()) {
            // The groups exchange half of their sums there.
            (true, None) => 2 * self.tile / 2 * UNIT * 4,
            (true, Some(_)) => groups * self.tile * UNIT,
            (false, _) => groups * self.tile * UNIT * 2,
        }
    }

    /// The longest chain of additions: in a run 16 products at a time, then run after run; of packed weights the sums of the
    /// groups.
    fn chain(&self) -> u32 {
        let (slices, slice) = (self.slices(), self.k / self.slices());
        let sums = match self.format.bits() {
            Some(_) => slice / GROUP,
            None => RUN / 16 + slice.div_ceil(RUN),
        };
        sums + slices + 17
    }
}

/// Blocks of the grid: whole clusters, a block for each multiprocessor. Any number of clusters is right.
fn blocks(info: &DeviceInfo) -> u32 {
    (processors(info) / CLUSTER).max(1) * CLUSTER
}

/// The constants of a tensor map (see `docs/design/kernels-cuda.md`): its number, its binding, and bytes of an element, elements of a row,
/// width and height of the box.
fn map(index: usize, binding: usize, [bytes, row, width, height]: [u32; 4]) -> Vec<(String, f64)> {
    let numbers = [("_BYTES", bytes), ("_ROW", row), ("_WIDTH", width), ("_HEIGHT", height)];
    let named = numbers.map(|(name, value)| (format!("MAP{index}{name}"), f64::from(value)));
    std::iter::once((format!("MAP{index}"), binding as f64)).chain(named).collect()
}

/// The plan of a product of many rows.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let found = Projection::from_op(request.op, request.inputs, request.outputs[0].dtype);
    let projection = found.filter(|_| request.binds_whole()).ok_or_else(|| unserved_error(request))?;
    let mut args = request.args(&[0])?;
    args.extend(request.args(&projection.weights)?);
    args.extend(projection.bias.map(Arg::whole_input));
    args.push(Arg::Output(0));
    projection.product.plan(request, args)
}

/// The plan of several products of one input: `linears`.
pub fn plan_several(request: &Request) -> Result<NodePlan> {
    let body = FusedBody::of_request(request)?;
    let projection =
        |node: &Node| Projection::from_op(&node.op, &body.types(node), body.ty(node.outputs[0]).dtype);
    let found: Option<Vec<Projection>> = body.nodes().iter().map(projection).collect();
    let found = found.filter(|_| request.binds_whole()).ok_or_else(|| unserved_error(request))?;
    let all: Vec<&Matmul> = found.iter().map(|projection| &projection.product).collect();
    let product = Matmul::fuse(&all).ok_or_else(|| unserved_error(request))?;
    let mut args = vec![body.read(body.nodes()[0].inputs[0])?];
    for (node, projection) in body.nodes().iter().zip(&found) {
        args.extend(body.read_weights(projection.weights.iter().map(|&k| node.inputs[k]))?);
    }
    let biases = body.nodes().iter().zip(&found);
    args.extend(body.read_all(biases.filter_map(|(node, of)| Some(node.inputs[of.bias?])))?);
    for node in body.nodes() {
        args.push(body.write(node.outputs[0])?);
    }
    product.plan(request, args)
}

impl Matmul {
    /// The plan of a launch with these arguments.
    /// Rows come in tiles, which the grid does not show: it is that of the chip.
    fn plan(&self, request: &Request, mut args: Vec<Arg>) -> Result<NodePlan> {
        let size = |name: &str, default: u32| request.setting.size(name, default);
        let (usual, tile) = (size("usual", self.usual), size("tile", self.tile));
        let (stagger, slices) = (size("stagger", 1) == 1, size("slices", self.slices));
        let set = Matmul { usual, tile, stagger, slices, ..self.clone() };
        let (desc, groups) = set.kernel(request.info).ok_or_else(|| unserved_error(request))?;
        args.push(Arg::Symbols);
        let tiles = Axis::steps("rows", self.rows.clone(), u64::from(tile));
        Ok(plan_of(Launch { desc, args, groups }, self.chain()).with_axes([tiles]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::Symbol;

    pub(super) fn product(outputs: &[u32], bits: Option<u32>, gated: bool) -> Matmul {
        let (rows, outputs) = (Dim::symbol(Symbol::N), outputs.to_vec());
        let code = |bits| if bits == 4 { Code::Int4 } else { Code::Int8 };
        let format = bits.map_or(Format::F16, |bits| Format::Packed(code(bits)));
        Matmul {
            k: 4096,
            format,
            outputs,
            gated,
            bias: None,
            out: DType::F16,
            rows,
            usual: USUAL_ROWS,
            tile: ROWS,
            stagger: true,
            slices: 1,
        }
    }

    fn chip(cuda: Option<u32>) -> DeviceInfo {
        let mut info = crate::any_device();
        info.limits.max_workgroup_memory = 227 << 10;
        info.limits.max_invocations = 1024;
        info.limits.max_storage_buffers = 64;
        info.limits.max_workgroup_size = [1024, 1024, 64];
        info.features.cuda = cuda;
        info
    }

    #[test]
    fn as_many_groups_as_end_soonest() {
        let groups = |outputs: &[u32], bits| product(outputs, bits, false).groups(132);
        assert_eq!(groups(&[4096], None), 2, "one tile a block");
        assert_eq!(groups(&[4096, 1024, 1024], Some(4)), 3, "one tile a block");
        assert_eq!(groups(&[2048], None), 1, "one tile a block");
        for bits in [None, Some(4), Some(8)] {
            assert_eq!(product(&[14336], bits, true).groups(132), 2);
        }
        assert_eq!(product(&[64], None, true).groups(132), 2, "a weight each");
        let few =
            |outputs: &[u32]| Matmul { usual: 64, tile: 64, ..product(outputs, None, false) }.groups(132);
        assert_eq!((few(&[4096]), few(&[4096, 1024, 1024])), (1, 1), "more blocks read weights");
    }

    #[test]
    fn the_grid_is_as_many_clusters_as_the_device_has_room_for() {
        for (processors, blocks) in
            [(None, 132u64), (Some(132), 132), (Some(115), 114), (Some(1), 2), (Some(0), 2)]
        {
            let mut info = chip(Some(HOPPER));
            info.features.processors = processors;
            let (desc, grid) = product(&[4096], None, false).kernel(&info).unwrap();
            assert_eq!(grid[0], Extent::from_dim(blocks), "{processors:?}");
            assert!(desc.constants.contains(&("BLOCKS".into(), blocks as f64)), "{processors:?}");
        }
    }

    #[test]
    fn arrays_are_mapped_where_they_are_bound() {
        let info = chip(Some(HOPPER));
        for (bits, gated, bound, row) in
            [(None, false, [0, 1], 4096), (Some(4), true, [0, 1], 512), (Some(8), true, [0, 1], 1024)]
        {
            let (desc, _) = product(&[4096], bits, gated).kernel(&info).unwrap();
            let constant =
                |name: &str| desc.constants.iter().find(|(n, _)| n == name).map(|(_, v)| *v as u32);
            let maps = [0, 1].map(|i| constant(&format!("MAP{i}")));
            assert_eq!((maps, constant("MAP1_ROW")), (bound.map(Some), Some(row)));
            assert_eq!(constant("MAP2"), gated.then_some(3));
            assert_eq!(constant("MAP3"), None);
        }
    }

    #[test]
    fn products_that_differ_in_more_than_outputs_are_not_joined() {
        let [q, k] = [product(&[4096], Some(4), false), product(&[1024], Some(4), false)];
        assert_eq!(Matmul::fuse(&[&q, &k, &k]), Some(product(&[4096, 1024, 1024], Some(4), false)));
        for other in [
            product(&[1024], None, false),
            product(&[1024], Some(8), false),
            Matmul { k: 64, ..k.clone() },
            Matmul { format: Format::Packed(Code::E4m3), ..k.clone() },
            Matmul { bias: Some(DType::F16), ..k.clone() },
        ] {
            assert_eq!(Matmul::fuse(&[&q, &other]), None, "{other:?}");
        }
        let gated = product(&[4096], Some(4), true);
        assert_eq!(Matmul::fuse(&[&gated, &gated]), None);
    }

    #[test]
    fn only_hopper_takes_it() {
        for (of, taken) in [(None, false), (Some(89), false), (Some(90), true), (Some(100), false)] {
            let info = chip(of);
            for bits in [None, Some(4), Some(8)] {
                let kernel = product(&[4096, 1024, 1024], bits, false).kernel(&info);
                assert_eq!(kernel.is_some(), taken, "{of:?}");
                let fits = kernel.is_none_or(|(desc, _)| desc.workgroup_memory <= 225 << 10);
                assert!(fits, "room for what the text declares");
            }
        }
    }
}
