//! `ScatterElements`, `Scatter` and `ScatterND`: the data are copied, then updates are put at their places or taken together with
//! what stands there. Of several updates of one place the last stands.

use super::formulas::formula;
use super::joining::{CopyCell, Runs, words_of};
use super::movement::int_words;
use super::places::{Slices, fits_along};
use super::{OnnxNode, Placed, count, launch, plan_with, strides, whole, words};
use crate::kernel::Request;
use crate::kernel::source::KernelSource;
use crate::plan::{Arg, Launch, NodePlan, Scratch};
use tapml_device::BindingKind;
use tapml_graph::{DType, Dim, Error, Extent, Result};

/// An invocation goes over the updates of one line along the axis, so that no two write one place.
const ELEMENTS: KernelSource = KernelSource {
    math: true,
    ..KernelSource::flat("onnx/scatter_elements", "onnx/integers.wgsl+onnx/scatter_elements.wgsl", "")
};
/// Puts rows of updates at their slices.
const ROWS: KernelSource = KernelSource {
    math: true,
    ..KernelSource::flat(
        "onnx/scatter_rows",
        "onnx/integers.wgsl+onnx/slices.wgsl+onnx/scatter_rows.wgsl",
        "",
    )
};
/// Settles which row writes each slice.
const OWNERS: KernelSource = KernelSource::flat("scatter_owner", "onnx/scatter_owner.wgsl", "");

/// How updates and data come together, in front of a text.
struct Together {
    /// Dtype of the activations in the text.
    act: DType,
    /// The type `num` and the function `together`.
    text: String,
    /// Whether an update takes the place of what stands there.
    replaces: bool,
}

/// The attribute `reduction`: its text, or that of a replacement.
fn parse_reduction(node: &OnnxNode) -> Result<Together> {
    let dtype = node.input(0)?.dtype();
    let name = match node.text("reduction", "none")? {
        "none" => None,
        "add" => Some("Add"),
        "mul" => Some("Mul"),
        "max" => Some("Max"),
        "min" => Some("Min"),
        other => return Err(node.unserved_error(&format!("the reduction `{other}`"))),
    };
    let Some(name) = name else {
        let num = match dtype.size() {
            8 => "vec2<u32>",
            4 => "u32",
            _ if dtype == DType::F16 => "act",
            _ => return Err(node.unserved_error(&format!("{dtype}"))),
        };
        let text =
            format!("alias num = {num};\nfn together(old: num, update: num) -> num {{ return update; }}\n");
        let act = if dtype == DType::F16 { DType::F16 } else { DType::F32 };
        return Ok(Together { act, text, replaces: true });
    };
    // Halves would be rounded at each update.
    let found = formula(name, dtype).filter(|_| dtype != DType::F16);
    let (numbers, formula) = found.ok_or_else(|| node.unserved_error(&format!("{name} of {dtype}")))?;
    let join = "fn together(old: num, update: num) -> num { return to_num(formula(val(old), val(update))); }";
    Ok(Together { act: DType::F32, text: format!("{numbers}{formula}\n{join}\n"), replaces: false })
}

/// The launch that copies the data.
fn copy_data(x: &Placed, y: &Placed) -> Result<Launch> {
    Runs::single(words_of(y)?, 0).launch(CopyCell::Word, |launch| launch.read(whole(*x)).output(y.index))
}

/// As a size of a grid.
fn elements(count: u32) -> Dim {
    Dim::from(u64::from(count))
}

/// `ScatterElements`, and `Scatter`, its name before version 11.
pub fn plan_elements(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["axis", "reduction"])?;
    let (x, indices) = (node.input(0)?, node.input(1)?);
    let (to, sizes) = (x.sizes()?, indices.sizes()?);
    let y = node.gives(0, x.dtype(), &to)?;
    let axis = node.axis(node.int("axis", 0)?, to.len())?;
    fits_along(&to, &sizes, axis)?;
    let updates = node.takes(2, x.dtype(), &sizes)?;
    let Together { act, text, .. } = parse_reduction(&node)?;
    let mut launches = vec![copy_data(&x, &y)?];
    if indices.count()? > 0 {
        let (own, steps) = (strides(&sizes), strides(&to));
        // Lines are told by the coordinates of all dimensions but the axis.
        let others = || (0..to.len()).filter(|&d| d != axis);
        let of = |list: &[u32]| others().map(|d| list[d]).collect::<Vec<u32>>();
        let lines = count(&of(&sizes))?;
        let table = words([of(&sizes), of(&own), of(&steps)].concat());
        let text = [text.as_str(), include_str!("integers.wgsl"), include_str!("scatter_elements.wgsl")];
        let launch = launch(&ELEMENTS, act, text.concat())?.read(whole(indices)).read(whole(updates));
        let launch = launch.read(Arg::Constant(0)).output(y.index).set("LINES", lines).set("K", sizes[axis]);
        let launch = launch.set("DIMS", to.len() as u32 - 1).set("AXIS_SIZE", to[axis]);
        let launch = launch.set("AXIS_STEP", steps[axis]).set("UPDATE_STEP", own[axis]);
        let launch = launch.set("INT_WORDS", int_words(&node, &indices)?);
        launches.push(launch.flat(elements(lines)));
        return Ok(plan_with(&ELEMENTS, launches, vec![table], sizes[axis].saturating_add(1)));
    }
    Ok(plan_with(&ELEMENTS, launches, Vec::new(), 0))
}

/// `ScatterND`.
pub fn plan_nd(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["reduction"])?;
    let (x, indices) = (node.input(0)?, node.input(1)?);
    let sizes = x.sizes()?;
    let y = node.gives(0, x.dtype(), &sizes)?;
    let slices = Slices::from_sizes(&sizes, &indices.sizes()?, 0)?;
    let updates = node.takes(2, x.dtype(), &slices.sizes)?;
    let Together { act, text, replaces } = parse_reduction(&node)?;
    let mut launches = vec![copy_data(&x, &y)?];
    let (total, slice) = (updates.count()?, slices.slice);
    if total == 0 || y.count()? == 0 {
        return Ok(plan_with(&ROWS, launches, Vec::new(), 0));
    }
    let rows = total / slice;
    let ints = int_words(&node, &indices)?;
    let start = |kernel: &KernelSource, file: &str| -> Result<_> {
        let parts = [text.as_str(), include_str!("integers.wgsl"), include_str!("slices.wgsl"), file];
        let launch = launch(kernel, act, parts.concat())?.read(whole(indices));
        Ok(slices.set(launch).set("INT_WORDS", ints))
    };
    let table = slices.table.clone();
    // One invocation for each element of a slice goes over all rows, so that sums are made in their order.
    if !replaces {
        let launch =
            start(&ROWS, include_str!("scatter_joined.wgsl"))?.read(whole(updates)).read(Arg::Constant(0));
        launches.push(launch.output(y.index).set("COUNT", rows).flat(elements(slice)));
        return Ok(plan_with(&ROWS, launches, vec![table], rows.saturating_add(1)));
    }
    // Who writes each slice is settled first, so that no two rows write one place.
    let owners = y.count()? / slice;
    // A run of one cell with a step of 0 reads the zero again and again.
    let clear = Runs { cells: owners, run: 1, x: (0, 0), y: (1, 0) };
    launches.push(
        clear.launch(CopyCell::Word, |launch| {
            launch.read(Arg::Constant(1)).scratch(0, BindingKind::ReadWrite)
        })?,
    );
    let launch = start(&OWNERS, include_str!("scatter_owner.wgsl"))?.read(Arg::Constant(0));
    let launch = launch.scratch(0, BindingKind::ReadWrite).set("COUNT", rows);
    launches.push(launch.flat(elements(rows)));
    let launch = start(&ROWS, include_str!("scatter_rows.wgsl"))?.read(whole(updates)).read(Arg::Constant(0));
    let launch = launch.scratch(0, BindingKind::Read).output(y.index).set("COUNT", total);
    launches.push(launch.flat(elements(total)));
    let bytes = u64::from(owners).checked_mul(4).ok_or_else(|| Error::unsupported("too many slices"))?;
    let plan = plan_with(&ROWS, launches, vec![table, vec![0; 4]], 1);
    Ok(NodePlan { scratch: vec![Scratch::Temporary(Extent::from_dim(bytes))], ..plan })
}
