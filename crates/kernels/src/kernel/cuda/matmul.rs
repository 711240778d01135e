//! Products of many rows on the tensor cores of Hopper chips: `matmul.cu`, and what it is asked to do.

use super::{bindings, desc, linear::MOST, may_be_one};
use crate::kernel::Request;
use crate::kernel::asked::{Asked, Places};
use crate::kernel::source::{affine, one, weight_code};
use crate::plan::{Arg, Launch, NodePlan, When};
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::op::Packing;
use tapml_graph::{DType, Dim, Extent, Op, TensorType};

const TEXT: &str = include_str!("matmul.cu");
/// The compute capability, times ten, whose tensor cores the kernel uses. No other has these instructions.
const HOPPER: u32 = 90;
/// Rows of a tile, and outputs that it can have; of gated products, those of both weights.
const ROWS: u32 = 128;
const COLUMNS: [u32; 3] = [128, 192, 64];
/// What a tile costs beside its products, in outputs.
const OVERHEAD: u32 = 40;
/// Rows of a run that tiles are chosen for.
const USUAL_ROWS: u32 = 512;
/// Blocks, one for each multiprocessor of a Hopper chip. Any number is right.
const BLOCKS: u32 = 132;
const THREADS: u32 = 512;
/// Elements along K of a stage.
const STEP: u32 = 64;
/// Elements that share a scale.
const GROUP: u32 = 32;
/// Bytes of shared memory that the text itself declares, or loses by alignment.
const BESIDE: u32 = 3 << 10;
/// Stages of the ring at most.
const DEPTH: u32 = 6;

/// Products of one input with a weight, with two and a gate, or with up to [`MOST`]. The kernel binds, in this order: `x`;
/// each weight, of a packed one words and scales; the biases; the outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Matmul {
    k: u32,
    /// Whether weights are packed in 4 bits.
    packed: bool,
    /// Outputs of each weight.
    outputs: Vec<u32>,
    gated: bool,
    bias: Option<DType>,
    out: DType,
    rows: Dim,
}

/// A node that is such a product, by its inputs.
#[derive(Clone, Debug)]
pub struct Projection {
    /// What it asks of the kernel.
    pub product: Matmul,
    /// The inputs that make up its weights.
    pub weights: Vec<usize>,
    /// Its bias.
    pub bias: Option<usize>,
}

impl Projection {
    /// The product that an operator is at these types, if the kernel can serve it.
    pub fn of(op: &Op, inputs: &[TensorType], out: DType) -> Option<Projection> {
        let asked = Asked::of(op, inputs)?;
        let (first, second) = asked.stored();
        let Asked { x, packing, gated, k, outputs, .. } = asked;
        let Places { weights, bias } = asked.places(stored(packing, first, second)?)?;
        let rows = x.shape.first()?;
        let fits = k > 0 && k.is_multiple_of(STEP) && outputs.is_multiple_of(8);
        let taken =
            x.dtype == DType::F16 && matches!(out, DType::F16 | DType::F32) && !(gated && out == DType::F32);
        let many = rows.as_const() != Some(1) && affine(rows).is_ok();
        if !fits || !taken || !many || outputs == 0 {
            return None;
        }
        let (packed, outputs, stored) = (packing.is_some(), vec![outputs], bias.map(|(_, dtype)| dtype));
        let product = Matmul { k, packed, outputs, gated, bias: stored, out, rows: rows.clone() };
        Some(Projection { product, weights, bias: bias.map(|(at, _)| at) })
    }
}

/// How many arrays a weight is stored in, if the kernel reads such; its first arrays have these types.
fn stored(packing: Option<Packing>, first: &TensorType, second: Option<&TensorType>) -> Option<usize> {
    match packing {
        None => (first.dtype == DType::F16).then_some(1),
        Some(p) => (p.bits == 4 && p.group == GROUP && !p.zeros && second?.dtype == DType::F16).then_some(2),
    }
}

impl Matmul {
    /// One launch for several products of one input; `None` if they differ in more than their outputs.
    pub fn joined(products: &[&Matmul]) -> Option<Matmul> {
        let [first, rest @ ..] = products else { return None };
        let outputs = products.iter().flat_map(|p| p.outputs.clone()).collect();
        let alike = |p: &&Matmul| Matmul { outputs: first.outputs.clone(), ..(**p).clone() } == **first;
        let fits = rest.iter().all(alike) && !first.gated && products.len() <= MOST;
        fits.then_some(Matmul { outputs, ..(*first).clone() })
    }

    /// The kernel and its grid; `None` if the device cannot run it.
    pub fn kernel(&self, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
        if info.features.cuda != Some(HOPPER) {
            return None;
        }
        let columns = self.columns();
        // Packed weights become two planes.
        let planes = if self.packed { 2 } else { 1 };
        let stage = (ROWS + planes * columns) * 2 * STEP;
        let stages = (info.limits.max_workgroup_memory.saturating_sub(BESIDE) / stage).min(DEPTH);
        if stages < 4 {
            return None;
        }
        let [n, p, constant] = affine(&self.rows).ok()?;
        let weights = if self.gated { 2 } else { self.outputs.len() };
        let biases = if self.bias.is_some() { self.outputs.len() } else { 0 };
        let read = 1 + weights * if self.packed { 2 } else { 1 } + biases;
        let mut desc = desc(info, "matmul/cuda", "cuda/matmul.cu", TEXT, THREADS, stages * stage + 1024);
        desc.bindings = bindings(read, self.outputs.len());
        let output = |at: usize| self.outputs.get(at).copied().unwrap_or(0);
        desc.constants = [
            ("K", self.k),
            ("COLS", columns),
            ("STAGES", stages),
            ("FORMAT", if self.packed { 4 } else { 1 }),
            ("PARTS", self.outputs.len() as u32),
            ("O0", output(0)),
            ("O1", output(1)),
            ("O2", output(2)),
            ("GATED", u32::from(self.gated)),
            ("BIAS", u32::from(self.bias.is_some())),
            ("B_DTYPE", self.bias.map_or(Some(0), |dtype| weight_code(dtype).ok())?),
            ("OUT_F32", u32::from(self.out == DType::F32)),
            ("BLOCKS", BLOCKS),
            ("ROWS_N", n),
            ("ROWS_P", p),
            ("ROWS_C", constant),
        ]
        .map(|(name, value)| (name.to_string(), f64::from(value)))
        .to_vec();
        desc.check_limits(info).ok()?;
        Some((desc, [Extent::of(u64::from(BLOCKS)), one(), one()]))
    }

    /// The outputs of a tile: as many as end soonest in a run of [`USUAL_ROWS`].
    fn columns(&self) -> u32 {
        let width = self.outputs.iter().sum::<u32>() * if self.gated { 2 } else { 1 };
        let cost = |columns: u32| {
            let tiles = u64::from(USUAL_ROWS / ROWS) * u64::from(width.div_ceil(columns));
            tiles.div_ceil(u64::from(BLOCKS)) * u64::from(columns + OVERHEAD)
        };
        // Wide tiles of two planes leave room for too few stages.
        let most = if self.packed { ROWS } else { u32::MAX };
        COLUMNS.into_iter().filter(|&c| c <= most).min_by_key(|&c| cost(c)).unwrap_or(ROWS)
    }

    /// The longest chain of additions: 16 products at a time, one after the other, of each plane.
    fn chain(&self) -> u32 {
        self.k / 16 * if self.packed { 2 } else { 1 } + 16
    }
}

/// The plan of a product with the launch for many rows in place of those that it has, where the device can run that. Those
/// for one row stay.
pub fn with_many_rows(request: &Request, mut plan: NodePlan) -> NodePlan {
    let found = Projection::of(request.op, request.inputs, request.outputs[0].dtype);
    let Some(projection) = found else { return plan };
    let Some((desc, groups)) = projection.product.kernel(request.info) else { return plan };
    // A weight that is bound in parts elsewhere would be stored twice.
    if plan.launches.iter().filter(|launch| launch.when != When::OneRow).count() > 1 {
        return plan;
    }
    let inputs = [0].into_iter().chain(projection.weights.iter().copied()).chain(projection.bias);
    let args = inputs.map(|index| Arg::Input { index, offset: 0, len: 0 });
    let args = args.chain([Arg::Output(0), Arg::Symbols]).collect();
    plan.launches.retain_mut(|launch| match launch.when {
        When::ManyRows => false,
        When::Always => {
            launch.when = When::OneRow;
            may_be_one(&projection.product.rows)
        }
        When::OneRow => true,
    });
    let when = if plan.launches.is_empty() { When::Always } else { When::ManyRows };
    plan.launches.push(Launch { desc, args, groups, when });
    super::declare(&mut plan, projection.product.chain());
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::Symbol;

    fn product(outputs: &[u32], packed: bool, gated: bool) -> Matmul {
        let (rows, outputs) = (Dim::symbol(Symbol::N), outputs.to_vec());
        Matmul { k: 4096, packed, outputs, gated, bias: None, out: DType::F16, rows }
    }

    #[test]
    fn tiles_are_as_wide_as_ends_soonest() {
        let columns = |outputs: &[u32], gated| product(outputs, false, gated).columns();
        assert_eq!(columns(&[4096], false), 128, "one tile a block");
        assert_eq!(columns(&[4096, 1024, 1024], false), 192, "one tile a block");
        assert_eq!(columns(&[2048], false), 64);
        assert_eq!(columns(&[14336], true), 192);
        assert_eq!(product(&[14336], true, true).columns(), 128, "two planes");
    }

    #[test]
    fn products_that_differ_in_more_than_outputs_are_not_joined() {
        let [q, k] = [product(&[4096], true, false), product(&[1024], true, false)];
        assert_eq!(Matmul::joined(&[&q, &k, &k]), Some(product(&[4096, 1024, 1024], true, false)));
        for other in [
            product(&[1024], false, false),
            Matmul { k: 64, ..k.clone() },
            Matmul { bias: Some(DType::F16), ..k.clone() },
        ] {
            assert_eq!(Matmul::joined(&[&q, &other]), None, "{other:?}");
        }
        let gated = product(&[4096], true, true);
        assert_eq!(Matmul::joined(&[&gated, &gated]), None);
    }

    #[test]
    fn only_hopper_takes_it() {
        let mut info = crate::any_device();
        info.limits.max_workgroup_memory = 227 << 10;
        info.limits.max_invocations = 1024;
        info.limits.max_storage_buffers = 64;
        info.limits.max_workgroup_size = [1024, 1024, 64];
        for (chip, taken) in [(None, false), (Some(89), false), (Some(90), true), (Some(100), false)] {
            info.features.cuda = chip;
            for packed in [false, true] {
                let kernel = product(&[4096, 1024, 1024], packed, false).kernel(&info);
                assert_eq!(kernel.is_some(), taken, "{chip:?}");
                let fits = kernel.is_none_or(|(desc, _)| desc.workgroup_memory <= 225 << 10);
                assert!(fits, "room for what the text declares");
            }
        }
    }
}
