//! Operators that copy runs of elements: `Concat` and `Split` with a launch for each part, and those that give the elements of
//! their first input in the same order, `Reshape`, `Squeeze`, `Unsqueeze`, `Flatten`, `Identity`, and `Dropout` where nothing
//! is dropped, with one run of all. Sizes are those that the node declares; inputs that hold sizes are not read.
//!
//! Elements are copied as bits. Dtypes of 8 bytes are two cells each; those of one or two bytes, f16 excepted, are
//! copied only as a whole, by words.

use super::{OnnxNode, Placed, count, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::source::{KernelSource, LaunchBuilder};
use crate::plan::{Arg, Launch, NodePlan};
use tapml_graph::{DType, Dim, Error, Result};

/// An invocation copies four cells.
const KERNEL: KernelSource = KernelSource::flat("onnx/joining", "onnx/joining.wgsl", "");

/// What is copied as one.
#[derive(Clone, Copy)]
pub enum CopyCell {
    /// 32 bits.
    Word,
    /// A number of f16.
    Half,
}

/// Runs of cells: how many cells in all, and of each run; where they begin in x and in y, each with the distance of two.
#[derive(Clone, Copy)]
pub struct Runs {
    /// Cells of all runs.
    pub cells: u32,
    /// Cells of one run.
    pub run: u32,
    /// Distance of two runs in x, and where the first begins.
    pub x: (u32, u32),
    /// As `x`, in y.
    pub y: (u32, u32),
}

impl Runs {
    /// One run of all, from a cell of x on.
    pub fn single(cells: u32, from: u32) -> Runs {
        Runs { cells, run: cells, x: (0, from), y: (0, 0) }
    }

    /// The launch that copies them, from what `bind` binds first to what it binds second.
    pub fn launch(
        &self,
        cell: CopyCell,
        bind: impl FnOnce(LaunchBuilder) -> LaunchBuilder,
    ) -> Result<Launch> {
        // The text is the same for both: only the alias says what a cell is.
        let (dtype, alias) = match cell {
            CopyCell::Word => (DType::F32, "alias cell = u32;\n"),
            CopyCell::Half => (DType::F16, "alias cell = act;\n"),
        };
        let text = format!("{alias}{}", include_str!("joining.wgsl"));
        let launch = bind(super::launch(&KERNEL, dtype, text)?);
        let launch = launch.set("CELLS", self.cells).set("RUN", self.run.max(1));
        let launch = launch.set("X_STEP", self.x.0).set("X_FROM", self.x.1);
        let launch = launch.set("Y_STEP", self.y.0).set("Y_FROM", self.y.1);
        Ok(launch.flat(Dim::from(u64::from(self.cells))))
    }
}

/// Words of 32 bits that hold a tensor.
///
/// # Errors
/// `Unsupported` if there are more than 32 bits can count.
pub fn words_of(value: &Placed) -> Result<u32> {
    let bytes = u64::from(value.count()?) * value.dtype().size() as u64;
    let words = u32::try_from(bytes.div_ceil(4));
    words.map_err(|_| Error::unsupported(format!("{} takes {bytes} bytes", value.ty)))
}

/// The plan that copies words from an input or a constant.
pub fn plan_words(from: Arg, y: &Placed, constants: Vec<Vec<u8>>) -> Result<NodePlan> {
    let launch =
        Runs::single(words_of(y)?, 0).launch(CopyCell::Word, |launch| launch.read(from).output(y.index))?;
    Ok(plan_with(&KERNEL, vec![launch], constants, 0))
}

/// The plan that gives the first input's elements in the same order.
/// Sizes may differ, as long as there are as many elements.
pub fn plan_copied(node: &OnnxNode, y: &Placed) -> Result<NodePlan> {
    let x = node.input(0)?;
    if x.dtype() == y.dtype() && x.count()? == y.count()? {
        plan_words(whole(x), y, Vec::new())
    } else {
        Err(Error::invalid(format!("`{}` declares {} from {}", node.op.kind(), y.ty, x.ty)))
    }
}

/// The plan of an operator that leaves the elements in their order.
pub fn plan_copy(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["axis", "axes", "shape", "allowzero", "ratio", "seed"])?;
    let asks_more = node.outputs.iter().skip(1).any(Option::is_some);
    // Early versions drop unless they are told that they test; late ones are told by an input.
    let drops = node.op.name() == "Dropout" && (node.version() < 7 || node.optional(2).is_some());
    if asks_more || drops {
        return Err(node.unserved_error("further outputs, or training"));
    }
    plan_copied(&node, &node.output(0)?)
}

/// Where the parts of a tensor along an axis are, in cells: the length of a run of each, and of one of the whole.
struct AxisParts {
    /// What is copied as one.
    cell: CopyCell,
    /// Cells of a run of each part.
    runs: Vec<u32>,
    /// Cells of a run of the whole.
    whole: u32,
    /// How many runs there are of each.
    outer: u32,
}

impl AxisParts {
    /// Fails unless the parts make up the whole along the axis, and agree with it along all others.
    fn from_node(node: &OnnxNode, axis: i64, whole: &Placed, parts: &[Placed]) -> Result<AxisParts> {
        let (dtype, sizes) = (whole.dtype(), whole.sizes()?);
        let (cell, cells) = match dtype.size() {
            4 | 8 => (CopyCell::Word, dtype.size() as u32 / 4),
            _ if dtype == DType::F16 => (CopyCell::Half, 1),
            _ => return Err(node.unserved_error(&format!("{dtype}"))),
        };
        let axis = node.axis(axis, sizes.len())?;
        let (mut along, mut rest) = (Vec::new(), sizes[axis]);
        for part in parts {
            let mut own = part.sizes()?;
            let size = own.get(axis).copied().unwrap_or(0);
            // With the size along the axis replaced, a part has to have the sizes of the whole.
            // Bounds are cut at the rank: a part may have fewer dimensions than the whole.
            own.splice(axis.min(own.len())..(axis + 1).min(own.len()), [sizes[axis]]);
            match rest.checked_sub(size).filter(|_| own == sizes && part.dtype() == dtype) {
                Some(left) => rest = left,
                None => return Err(Error::invalid(format!("{} is no part of {}", part.ty, whole.ty))),
            }
            along.push(size);
        }
        if rest > 0 {
            return Err(Error::invalid(format!("{rest} elements of {} are in no part", whole.ty)));
        }
        let outer = count(&sizes[..axis])?;
        let inner = count(&sizes[axis + 1..])?;
        // Kernels count cells by 32 bits. What holds for the whole holds for its parts.
        let run = sizes[axis].checked_mul(inner).and_then(|run| run.checked_mul(cells));
        let run = run.filter(|run| run.checked_mul(outer).is_some());
        let run =
            run.ok_or_else(|| node.unserved_error(&format!("as many elements as those of {}", whole.ty)))?;
        let runs = along.into_iter().map(|size| size * inner * cells).collect();
        Ok(AxisParts { cell, runs, whole: run, outer })
    }

    /// A launch for each part that is not empty. `runs` makes its runs of where the part is and where the whole, `bind` binds.
    fn launches(
        &self,
        runs: impl Fn((u32, u32), (u32, u32)) -> [(u32, u32); 2],
        bind: impl Fn(usize, LaunchBuilder) -> LaunchBuilder,
    ) -> Result<Vec<Launch>> {
        let mut launches = Vec::new();
        let mut from = 0;
        for (at, &run) in self.runs.iter().enumerate() {
            let cells = self.outer * run;
            // A launch over nothing would still be a dispatch.
            if cells > 0 {
                let [x, y] = runs((run, 0), (self.whole, from));
                launches.push(Runs { cells, run, x, y }.launch(self.cell, |launch| bind(at, launch))?);
            }
            from += run;
        }
        Ok(launches)
    }
}

/// `Concat`: a launch for each input.
pub fn plan_concat(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["axis"])?;
    let y = node.output(0)?;
    let inputs: Vec<Placed> = node.inputs.iter().copied().flatten().collect();
    let bind = |at: usize, launch: LaunchBuilder| launch.read(whole(inputs[at])).output(y.index);
    // The attribute has a default up to version 3, and must be there from version 4 on.
    if node.version() >= 4 && !node.op.attributes().contains_key("axis") {
        return Err(Error::invalid("`Concat` needs the attribute `axis`"));
    }
    let axis = node.int("axis", 1)?;
    let launches =
        AxisParts::from_node(&node, axis, &y, &inputs)?.launches(|part, whole| [part, whole], bind)?;
    Ok(plan_with(&KERNEL, launches, Vec::new(), 0))
}

/// `Split`. How long the parts are is told by the declared outputs, whatever the attribute or input says.
pub fn plan_split(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["axis", "split", "num_outputs"])?;
    let x = node.input(0)?;
    let outputs: Option<Vec<Placed>> = node.outputs.iter().copied().collect();
    let outputs = outputs.ok_or_else(|| node.unserved_error("a part that nobody asks for"))?;
    let bind = |at: usize, launch: LaunchBuilder| launch.read(whole(x)).output(outputs[at].index);
    let launches = AxisParts::from_node(&node, node.int("axis", 0)?, &x, &outputs)?
        .launches(|part, whole| [whole, part], bind)?;
    Ok(plan_with(&KERNEL, launches, Vec::new(), 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_device::test_device;
    use tapml_device::Limits;
    use tapml_graph::{ErrorKind, Graph};

    /// What a planner makes of the one node of a graph.
    fn plan(planner: fn(&Request) -> Result<NodePlan>, text: &str) -> Result<NodePlan> {
        let info = test_device(Limits::WEBGPU, false);
        let graph = Graph::parse(&format!("graph g\n{text}\noutput y = y\n")).unwrap();
        let node = &graph.nodes()[0];
        let types = |ids: &[tapml_graph::ValueId]| ids.iter().map(|&id| graph.value(id).ty.clone()).collect();
        let (inputs, outputs): (Vec<_>, Vec<_>) = (types(&node.inputs), types(&node.outputs));
        planner(&Request {
            op: &node.op,
            inputs: &inputs,
            outputs: &outputs,
            info: &info,
            phase: crate::Phase::Prefill,
            setting: Default::default(),
            plan_step: |op, _, _, _| Err(Error::unsupported(format!("`{}` has no steps", op.name()))),
        })
    }

    #[test]
    fn early_versions_join_along_dimension_1_and_later_ones_are_told() {
        let concat = |version: u32| {
            let inputs = "input a: f32[2,3]\ninput b: f32[2,4]";
            plan(plan_concat, &format!("{inputs}\ny: f32[2,7] = onnx.Concat@{version}(a, b)"))
        };
        assert_eq!(concat(1).unwrap().launches.len(), 2);
        assert_eq!(concat(4).unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn more_cells_than_32_bits_count_are_refused() {
        // Each element is two cells.
        let types = "input a: i64[32768,32768]\ninput b: i64[32768,32768]\ny: i64[65536,32768]";
        let refused = plan(plan_concat, &format!("{types} = onnx.Concat@13(a, b) {{\"axis\":0}}"));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
