//! `com.microsoft.DynamicQuantizeLSTM`: inputs and weights without their zero points lie in scratch as integers of 32 bits; the
//! products of the inputs are made for all steps at once, those of the states by one workgroup for each direction.
//!
//! Inputs are quantised as they run, weights are quantised in the file:
//! <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.DynamicQuantizeLSTM>.
//! Sums of integers are exact, so that their order does not matter.

use super::quantize::{Dynamic, bits, integers};
use super::quantized::{Centre, Products, integers_of};
use super::recurrent::{Sequences, optional};
use super::{OnnxNode, Placed, count, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::source::KernelSource;
use crate::plan::{Arg, Launch, NodePlan};
use tapml_device::BindingKind;
use tapml_graph::{DType, Dim, Error, Result};

/// Scales the sums of the inputs' products and adds the bias.
const GATES: KernelSource =
    KernelSource::flat("onnx/scaled_gates", "onnx/scaled_gates.wgsl", include_str!("scaled_gates.wgsl"));
/// Walks through the steps.
const LSTM: KernelSource =
    KernelSource { math: true, ..integers!("dynamic_lstm", 14336, "recurrent.wgsl", "dynamic_lstm.wgsl") };

/// What lies in scratch behind the result, which has scratch 0: parts of the extremes of x, its scale, its zero point, x in bytes,
/// x, w and r as integers, products of x, and gates without the state.
const PARTS: usize = 1;
// PARTS takes three buffers, so that the next one is 4.
const BYTES: usize = 4;
const X: usize = 5;
const W: usize = 6;
const R: usize = 7;
const SUMS: usize = 8;
const INPUTS: usize = 9;

/// A weight of 8 bits with its parameters.
struct QuantizedWeight<'a> {
    /// The integers: `[directions, rows, columns]`, of i8 or u8.
    data: Placed<'a>,
    /// One for each direction, or one for each column of it.
    scale: Placed<'a>,
    /// Zero points, as many as scales.
    zero: Option<Placed<'a>>,
    /// Whether each column has a scale.
    each: bool,
}

impl<'a> QuantizedWeight<'a> {
    /// Of these sizes, with its scale at a place and its zero point behind.
    fn from_node(
        node: &OnnxNode<'a>,
        place: usize,
        scale: usize,
        sizes: &[u32; 3],
    ) -> Result<QuantizedWeight<'a>> {
        let data = node.input(place)?;
        if !matches!(data.dtype(), DType::I8 | DType::U8) {
            return Err(node.unserved_error(&format!("a weight of {}", data.ty)));
        }
        let data = node.takes(place, data.dtype(), sizes)?;
        let [directions, _, columns] = *sizes;
        let given = node.input(scale)?.sizes()?;
        let each = given == [directions, columns];
        let expected = if each { vec![directions, columns] } else { vec![directions] };
        let zero = node.may_take(scale + 1, data.dtype(), &expected)?;
        Ok(QuantizedWeight { data, scale: node.takes(scale, DType::F32, &expected)?, zero, each })
    }

    /// The launch that leaves it in scratch without its zero points.
    fn centre(&self, node: &OnnxNode, scratch: usize) -> Result<Launch> {
        let sizes = self.data.sizes()?;
        let (k, columns) = (sizes[1].max(1), sizes[2].max(1));
        // All rows of a direction are one block for the zero points of its columns.
        let of_columns = [("FORM", 2), ("SIZE", k), ("INNER", columns), ("BLOCK", k)];
        let of_directions = [("FORM", 1), ("SIZE", sizes[0].max(1)), ("INNER", count(&[k, columns])?)];
        let place: &[_] = if self.each { &of_columns } else { &of_directions };
        let centre = Centre {
            x: whole(self.data),
            bits: bits(node, self.data.dtype())?,
            count: self.data.count()?,
            zero: self.zero.map(whole),
            place,
        };
        centre.launch(scratch)
    }
}

/// The plan of the operator for one sequence.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    let (x, r) = (node.input(0)?, node.input(2)?);
    let &[_, hidden, columns] = r.sizes()?.as_slice() else {
        return Err(Error::invalid(format!("{} with {}", x.ty, r.ty)));
    };
    let sequences = Sequences::from_node(&node, hidden, &["sigmoid", "tanh", "tanh"])?;
    let Sequences { steps, batch, inputs, directions, .. } = sequences;
    if x.dtype() != DType::F32 || batch != 1 || node.int("layout", 0)? != 0 {
        return Err(node.unserved_error(&format!("{}: more than one sequence, or another dtype", x.ty)));
    }
    let w = QuantizedWeight::from_node(&node, 1, 8, &[directions, inputs, columns])?;
    let r = QuantizedWeight::from_node(&node, 2, 10, &[directions, hidden, columns])?;
    // Four gates: input, output, forget and cell.
    if Some(columns) != hidden.checked_mul(4) {
        return Err(Error::invalid(format!("{columns} columns for {hidden} hidden units")));
    }
    node.may_take(3, DType::F32, &[directions, 2 * columns])?;
    node.may_take(4, DType::I32, &[batch])?;
    node.may_take(5, DType::F32, &sequences.state())?;
    let given_c = node.may_take(6, DType::F32, &sequences.state())?;
    let (copies, elements) = sequences.copies(&node, DType::F32, 2)?;
    let elements = u32::try_from(elements).map_err(|_| node.unserved_error("so many states"))?;
    if x.count()? == 0 {
        return Err(node.unserved_error("an empty tensor"));
    }
    let dynamic = Dynamic { x: whole(x), dtype: DType::F32, count: x.count()? };
    let mut launches = dynamic.launches(PARTS, |launch| launch.scratch(BYTES, BindingKind::ReadWrite))?;
    launches.push(centred_input(&x)?);
    launches.extend([w.centre(&node, W)?, r.centre(&node, R)?]);
    let products = Products {
        m: steps,
        n: columns,
        k: inputs,
        batch: [vec![directions], vec![0], vec![count(&[inputs, columns])?]],
    };
    launches.push(products.launch([X, W], 1, |launch| launch.scratch(SUMS, BindingKind::ReadWrite))?);
    let gates = count(&[directions, steps, columns])?;
    let launch = GATES.launch(DType::F32, DType::F32)?.scratch(SUMS, BindingKind::Read);
    let launch = launch.scratch(PARTS + 1, BindingKind::Read).read(whole(w.scale)).read(optional(&node, 3));
    let launch = launch.scratch(INPUTS, BindingKind::ReadWrite).set("COUNT", gates).set("ROWS", steps);
    let launch = launch.set("COLUMNS", columns).set("HAS_BIAS", u32::from(node.optional(3).is_some()));
    launches.push(launch.set("EACH", u32::from(w.each)).flat(Dim::from(u64::from(gates))));
    let launch = LSTM.launch(DType::F32, DType::F32)?.scratch(INPUTS, BindingKind::Read);
    let launch = launch.scratch(R, BindingKind::Read).read(whole(r.scale)).read(optional(&node, 4));
    let launch = launch.read(optional(&node, 5)).read(optional(&node, 6));
    let launch = launch.set("HAS_C", u32::from(given_c.is_some())).set("EACH", u32::from(r.each));
    launches.push(sequences.launch(sequences.set(launch.scratch(0, BindingKind::ReadWrite), &node)));
    launches.extend(copies);
    // Products are exact sums of integers: only the state adds up from step to step.
    let chain = steps.saturating_add(2);
    let plan = plan_with(&LSTM, launches, vec![vec![0; 4], products.table()], chain);
    let mut scratch = vec![integers_of(elements)];
    scratch.extend(dynamic.scratch());
    scratch.push(integers_of(x.count()?.div_ceil(4)));
    // In the order of the scratch indices from X on.
    let counts = [x.count()?, w.data.count()?, r.data.count()?, gates, gates];
    scratch.extend(counts.map(integers_of));
    Ok(NodePlan { scratch, ..plan })
}

/// The launch that takes the zero point off the inputs in bytes.
fn centred_input(x: &Placed) -> Result<Launch> {
    let centre = Centre {
        x: Arg::Scratch(BYTES),
        bits: [("BITS", 8), ("SIGNED", 0)],
        count: x.count()?,
        zero: Some(Arg::Scratch(PARTS + 2)),
        place: &[],
    };
    centre.launch(X)
}
