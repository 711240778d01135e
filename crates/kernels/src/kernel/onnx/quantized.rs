//! Products and convolutions of integers of 8 bits: `MatMulInteger`, `ConvInteger`, `QLinearMatMul`, `QLinearConv`. The zero points
//! are taken off first, then integers of 32 bits are multiplied and added up, and for the latter two their sums are scaled.
//!
//! Sums of products of two integers of 8 bits are exact in 32 bits, whatever their order, up to the point where they
//! wrap.

use super::joining::words_of;
use super::quantize::{bits, integers, set};
use super::window::{Window, WindowSizes, windowed};
use super::{OnnxNode, Placed, broadcast_strides, count, plan_with, whole, words};
use crate::kernel::Request;
use crate::kernel::source::{KernelSource, LaunchBuilder};
use crate::plan::{Arg, Launch, NodePlan, Scratch};
use tapml_device::BindingKind;
use tapml_graph::{DType, Dim, Error, Extent, Result};

/// Takes zero points off.
const CENTRE: KernelSource = integers!("centre", 0, "scales.wgsl", "centre.wgsl");
/// Scales sums to integers of 8 bits.
const REQUANTIZE: KernelSource = integers!("requantize", 0, "requantize.wgsl");
/// Products of matrices of integers.
const MATRIX: KernelSource = KernelSource {
    workgroup_memory: 2048,
    ..KernelSource::flat(
        "onnx/integer_matrix",
        "onnx/integer_matrix.wgsl",
        include_str!("integer_matrix.wgsl"),
    )
};
/// Convolutions of integers.
const CONVOLUTION: KernelSource = windowed!("integer_convolution", "integer_convolution.wgsl");

/// Channels of the output that an invocation of a convolution treats.
const TILE: u32 = 4;

/// Where the parameters of an operand stand among the inputs.
#[derive(Clone, Copy)]
struct QuantizedOperand {
    /// The place of the integers.
    data: usize,
    /// The place of the scale, where there is one.
    scale: usize,
    /// The place of the zero point.
    zero: usize,
}

/// The operands of a node, in the order of its inputs.
fn operands(node: &OnnxNode) -> [QuantizedOperand; 2] {
    if node.op.name().starts_with("QLinear") {
        [QuantizedOperand { data: 0, scale: 1, zero: 2 }, QuantizedOperand { data: 3, scale: 4, zero: 5 }]
    } else {
        [QuantizedOperand { data: 0, scale: 0, zero: 2 }, QuantizedOperand { data: 1, scale: 0, zero: 3 }]
    }
}

/// Scratch of so many integers of 32 bits.
pub fn integers_of(count: u32) -> Scratch {
    Scratch::Temporary(Extent::from_dim(4 * u64::from(count.max(1))))
}

/// What takes the zero point off integers: `zero` is what is bound, `place` which zero point is that of an element.
pub struct Centre<'a> {
    /// The integers.
    pub x: Arg,
    /// Their bits, and whether they have a sign; see [`bits`].
    pub bits: [(&'static str, u32); 2],
    /// How many there are.
    pub count: u32,
    /// Zero points; none means 0.
    pub zero: Option<Arg>,
    /// Constants that say which zero point is that of an element.
    pub place: &'a [(&'static str, u32)],
}

impl Centre<'_> {
    /// The launch that leaves them in scratch.
    pub fn launch(&self, scratch: usize) -> Result<Launch> {
        let launch = CENTRE.launch(DType::F32, DType::F32)?.read(self.x);
        let launch = launch.read(self.zero.unwrap_or(Arg::Constant(0)));
        let launch = launch.scratch(scratch, BindingKind::ReadWrite).set("COUNT", self.count);
        let launch = launch.set("HAS_ZERO", u32::from(self.zero.is_some()));
        let launch = set(launch, self.bits.into_iter().chain(self.place.iter().copied()));
        Ok(launch.flat(Dim::from(u64::from(self.count))))
    }
}

/// An operand with its zero points taken off, in scratch. There is one of them, or one for each of `count` indices with `inner`
/// elements behind.
fn centre_operand(
    node: &OnnxNode,
    operand: QuantizedOperand,
    (count, inner): (u32, u32),
    scratch: usize,
) -> Result<Launch> {
    let x = node.input(operand.data)?;
    if !matches!(x.dtype(), DType::I8 | DType::U8) {
        return Err(node.unserved_error(&format!("{}", x.dtype())));
    }
    let zero = node.optional(operand.zero);
    // A list of one counts as a single zero point.
    let each =
        zero.map_or(Ok(false), |zero| Ok::<bool, Error>(zero.sizes()?.len() == 1 && zero.count()? != 1))?;
    if let Some(zero) = zero {
        let fits = if each { zero.sizes()? == [count] } else { zero.count()? == 1 };
        if zero.dtype() != x.dtype() || !fits {
            return Err(node.unserved_error(&format!("zero points of {} for {}", zero.ty, x.ty)));
        }
    }
    let place = [("FORM", u32::from(each)), ("SIZE", count.max(1)), ("INNER", inner.max(1))];
    let centre = Centre {
        x: whole(x),
        bits: bits(node, x.dtype())?,
        count: x.count()?,
        zero: zero.map(whole),
        place: &place,
    };
    centre.launch(scratch)
}

/// Products of a batch of matrices of integers.
pub struct Products {
    /// Rows.
    pub m: u32,
    /// Columns.
    pub n: u32,
    /// Terms of a sum.
    pub k: u32,
    /// Sizes of the batch, and the strides of both operands along it.
    pub batch: [Vec<u32>; 3],
}

impl Products {
    /// The launch that multiplies what is in scratch `a` and `b`; constant `sizes` holds [`Products::table`].
    pub fn launch(
        &self,
        [a, b]: [usize; 2],
        sizes: usize,
        bind: impl FnOnce(LaunchBuilder) -> LaunchBuilder,
    ) -> Result<Launch> {
        let launch = MATRIX.launch(DType::F32, DType::F32)?.scratch(a, BindingKind::Read);
        let launch = bind(launch.scratch(b, BindingKind::Read).read(Arg::Constant(sizes)));
        let launch = launch.set("M", self.m).set("N", self.n).set("K", self.k);
        let launch = launch.set("BATCH_RANK", self.batch[0].len() as u32);
        let groups = |size: u32| Extent::from_dim(u64::from(size.div_ceil(16)));
        let batch = Extent::from_dim(u64::from(count(&self.batch[0])?));
        Ok(launch.groups([groups(self.n), groups(self.m), batch]))
    }

    /// The batch as a constant: its sizes, then the strides of both operands.
    pub fn table(&self) -> Vec<u8> {
        words(self.batch.iter().flatten().copied())
    }
}

/// Whether the sums of a node are scaled to integers of 8 bits.
fn scales_sums(node: &OnnxNode) -> bool {
    node.op.name().starts_with("QLinear")
}

/// The output, whose sizes are these; sums that are scaled lie in scratch 2 before.
fn output<'a>(node: &OnnxNode<'a>, sizes: &[u32]) -> Result<Placed<'a>> {
    if scales_sums(node) {
        node.gives(0, node.input(7)?.dtype(), sizes)
    } else {
        node.gives(0, DType::I32, sizes)
    }
}

/// Binds what the sums are written to.
fn bind_sums(node: &OnnxNode, y: &Placed, launch: LaunchBuilder) -> LaunchBuilder {
    if scales_sums(node) { launch.scratch(2, BindingKind::ReadWrite) } else { launch.output(y.index) }
}

/// The launch that scales the sums: scales of both operands are one, or one for each of so many indices with so many elements
/// behind. A bias has those of the second.
fn scale_sums(node: &OnnxNode, y: &Placed, [a, b]: [(u32, u32); 2]) -> Result<Launch> {
    let bias = match node.op.name() {
        "QLinearConv" => node.may_take(8, DType::I32, &[b.0])?,
        _ => None,
    };
    let zero = node.input(7)?;
    if !matches!(zero.dtype(), DType::I8 | DType::U8) || zero.count()? != 1 || node.input(6)?.count()? != 1 {
        return Err(node.unserved_error(&format!("an output of {} with {}", zero.ty, node.input(6)?.ty)));
    }
    let scale = |place: usize, (most, inner): (u32, u32)| -> Result<(Placed, u32, u32)> {
        let scale = node.input(place)?;
        let fits = scale.count()? == 1 || scale.sizes()? == [most];
        if scale.dtype() != DType::F32 || !fits {
            return Err(node.unserved_error(&format!("scales of {}", scale.ty)));
        }
        Ok((scale, scale.count()?.max(1), inner.max(1)))
    };
    let [first, second] = operands(node);
    let (a_scale, a_count, a_inner) = scale(first.scale, a)?;
    let (b_scale, b_count, b_inner) = scale(second.scale, b)?;
    let (y_scale, words) = (scale(6, (1, 1))?.0, words_of(y)?);
    let launch = REQUANTIZE.launch(DType::F32, DType::F32)?.scratch(2, BindingKind::Read);
    let launch = launch.read(bias.map_or(Arg::Constant(0), whole)).read(whole(a_scale)).read(whole(b_scale));
    let launch = launch.read(whole(y_scale)).read(whole(zero)).output(y.index);
    let launch = launch.set("COUNT", y.count()?).set("WORDS", words).set("A_COUNT", a_count);
    let launch = launch.set("A_INNER", a_inner).set("B_COUNT", b_count).set("B_INNER", b_inner);
    let launch = launch.set("HAS_BIAS", u32::from(bias.is_some())).set("BIASES", b.0.max(1));
    Ok(set(launch, bits(node, y.dtype())?).flat(Dim::from(u64::from(words))))
}

/// The plan of these launches, of which the first two leave the operands in scratch.
fn finish_plan(
    node: &OnnxNode,
    kernel: &KernelSource,
    launches: Vec<Launch>,
    table: Vec<u8>,
    y: &Placed,
) -> Result<NodePlan> {
    // Scratch 0 and 1 hold both operands, scratch 2 the sums, if they are scaled afterwards.
    let [a, b] = operands(node);
    let counts = [node.input(a.data)?.count()?, node.input(b.data)?.count()?, y.count()?];
    let scratch = counts.iter().take(if scales_sums(node) { 3 } else { 2 }).map(|&count| integers_of(count));
    let scratch = scratch.collect();
    Ok(NodePlan { scratch, ..plan_with(kernel, launches, vec![vec![0; 4], table], 1) })
}

/// `MatMulInteger` or `QLinearMatMul`.
pub fn plan_matmul(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&[])?;
    let [first, second] = operands(&node);
    let (a, b) = (node.input(first.data)?.sizes()?, node.input(second.data)?.sizes()?);
    let ([batch_a @ .., m, k], [batch_b @ .., rows, n]) = (a.as_slice(), b.as_slice()) else {
        return Err(node.unserved_error("vectors"));
    };
    if k != rows {
        return Err(Error::invalid(format!("a product of {a:?} and {b:?}")));
    }
    let rank = batch_a.len().max(batch_b.len());
    let at = |sizes: &[u32], d: usize| (d + sizes.len()).checked_sub(rank).map_or(1, |at| sizes[at]);
    let batch: Vec<u32> = (0..rank)
        .map(|d| match at(batch_a, d) {
            1 => at(batch_b, d),
            size => size,
        })
        .collect();
    // Strides of the batch are those of whole matrices.
    let along = |sizes: &[u32], volume: u32| -> Result<Vec<u32>> {
        let of_matrices = broadcast_strides(sizes, &batch)?;
        Ok(of_matrices.into_iter().map(|stride| stride.wrapping_mul(volume)).collect())
    };
    let strides = [along(batch_a, m.wrapping_mul(*k))?, along(batch_b, k.wrapping_mul(*n))?];
    let [a_strides, b_strides] = strides;
    let products = Products { m: *m, n: *n, k: *k, batch: [batch.clone(), a_strides, b_strides] };
    let y = output(&node, &[batch.as_slice(), &[*m, *n]].concat())?;
    let mut launches =
        // Zero points of the first operand belong to its rows, those of the second to its columns.
        vec![centre_operand(&node, first, (*m, *k), 0)?, centre_operand(&node, second, (*n, 1), 1)?];
    launches.push(products.launch([0, 1], 1, |launch| bind_sums(&node, &y, launch))?);
    if scales_sums(&node) {
        launches.push(scale_sums(&node, &y, [(*m, *n), (*n, 1)])?);
    }
    finish_plan(&node, &MATRIX, launches, products.table(), &y)
}

/// `ConvInteger` or `QLinearConv`.
pub fn plan_convolution(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"])?;
    let [first, second] = operands(&node);
    let (x, w) = (node.input(first.data)?.sizes()?, node.input(second.data)?.sizes()?);
    let declared = node.output(0)?.sizes()?;
    let ranks = [x.len(), w.len(), declared.len()];
    if !ranks.iter().all(|&rank| rank == ranks[0] && rank > 2) {
        return Err(node.unserved_error(&format!("{x:?} with a weight of {w:?}")));
    }
    let groups = u32::try_from(node.int("group", 1)?).ok().filter(|&groups| groups > 0);
    let groups = groups.ok_or_else(|| Error::invalid("`group` is no positive integer"))?;
    let window = Window::from_node(
        &node,
        WindowSizes { input: &x[2..], output: &declared[2..], kernel: &w[2..] },
        false,
    )?;
    window.expect_convolved()?;
    let (channels, outputs) = (w[1], w[0] / groups);
    if channels.checked_mul(groups) != Some(x[1]) || outputs * groups != w[0] || outputs == 0 {
        return Err(Error::invalid(format!("{x:?} with a weight of {w:?} in {groups} groups")));
    }
    let y = output(&node, &[&[x[0], w[0]], &declared[2..]].concat())?;
    // Terms of a sum, which are also the elements that share a zero point; and elements of a channel of y.
    let (volume, places) = (channels.saturating_mul(count(&w[2..])?), count(&declared[2..])?);
    // Of x there is one zero point.
    let mut launches =
        vec![centre_operand(&node, first, (1, 1), 0)?, centre_operand(&node, second, (w[0], volume), 1)?];
    // Channels of one group are not mixed with those of another in a tile.
    let tiles = outputs.div_ceil(TILE);
    let launch = CONVOLUTION.launch(DType::F32, DType::F32)?.scratch(0, BindingKind::Read);
    let launch = bind_sums(&node, &y, launch.scratch(1, BindingKind::Read)).set("CHANNELS", channels);
    let launch = launch.set("OUTPUTS", outputs).set("GROUPS", groups).set("TILES", tiles);
    let launch = window.set(launch.set("PLACES", places));
    let size = |size: u32| Extent::from_dim(u64::from(size));
    launches.push(launch.groups([
        size(places.div_ceil(256)),
        size(groups.saturating_mul(tiles)),
        size(x[0]),
    ]));
    if scales_sums(&node) {
        launches.push(scale_sums(&node, &y, [(1, 1), (w[0], places)])?);
    }
    finish_plan(&node, &CONVOLUTION, launches, Vec::new(), &y)
}
