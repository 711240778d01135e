//! `Concat` and `Split`: a launch for each part, which copies runs of it.

use super::{Node, Placed, count, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::source::Kernel;
use crate::plan::{Arg, Launch, NodePlan};
use tapml_graph::{DType, Dim, Result};

const KERNEL: Kernel = Kernel::flat("onnx/joining", "onnx/joining.wgsl", "");

/// What is copied as one: a word, or a number of f16; and how many of them an element has.
fn cell(node: &Node, dtype: DType) -> Result<(DType, &'static str, u32)> {
    match dtype.size() {
        4 | 8 => Ok((DType::F32, "alias cell = u32;\n", dtype.size() as u32 / 4)),
        _ if dtype == DType::F16 => Ok((DType::F16, "alias cell = act;\n", 1)),
        _ => Err(node.unserved(&format!("{dtype}"))),
    }
}

/// Where the parts of a tensor along an axis are, in cells: the length of a run of each, and of one of the whole.
struct Parts {
    runs: Vec<u32>,
    whole: u32,
    outer: u32,
}

fn parts(node: &Node, whole: &Placed, parts: &[Placed], cells: u32) -> Result<Parts> {
    let sizes = whole.sizes()?;
    let axis = node.axis(node.int("axis", 0)?, sizes.len())?;
    let inner = count(&sizes[axis + 1..])?.saturating_mul(cells);
    let run = |part: &Placed| {
        let sizes = part.sizes()?;
        Ok(sizes.get(axis).copied().unwrap_or(0).saturating_mul(inner))
    };
    let runs = parts.iter().map(run).collect::<Result<_>>()?;
    Ok(Parts { runs, whole: sizes[axis].saturating_mul(inner), outer: count(&sizes[..axis])? })
}

impl Parts {
    /// A launch for each part that is not empty; `ends` binds one.
    fn launches(
        &self,
        (dtype, alias): (DType, &str),
        ends: impl Fn(usize) -> (Arg, usize),
        is_split: bool,
    ) -> Result<Vec<Launch>> {
        let mut launches = Vec::new();
        let mut from = 0;
        for (at, &run) in self.runs.iter().enumerate() {
            let words = self.outer.saturating_mul(run);
            if words > 0 {
                let text = format!("{alias}{}", include_str!("joining.wgsl"));
                let (x, y) = ends(at);
                let launch = super::launch(&KERNEL, dtype, text)?.read(x).output(y);
                let (part, whole) = ((run, 0), (self.whole, from));
                let (x, y) = if is_split { (whole, part) } else { (part, whole) };
                let launch = launch.set("WORDS", words).set("RUN", run).set("X_STEP", x.0).set("X_FROM", x.1);
                let launch = launch.set("Y_STEP", y.0).set("Y_FROM", y.1);
                launches.push(launch.flat(Dim::from(u64::from(words))));
            }
            from += run;
        }
        Ok(launches)
    }
}

pub fn plan_concat(request: &Request) -> Result<NodePlan> {
    let node = Node::of(request)?;
    node.reads(&["axis"])?;
    let y = node.output(0)?;
    let inputs: Vec<Placed> = node.inputs.iter().copied().flatten().collect();
    let (dtype, alias, cells) = cell(&node, y.dtype())?;
    let joined = parts(&node, &y, &inputs, cells)?;
    let launches = joined.launches((dtype, alias), |at| (whole(inputs[at]), y.index), false)?;
    Ok(plan_with(&KERNEL, launches, Vec::new(), 0))
}

pub fn plan_split(request: &Request) -> Result<NodePlan> {
    let node = Node::of(request)?;
    node.reads(&["axis", "split", "num_outputs"])?;
    let x = node.input(0)?;
    let outputs: Option<Vec<Placed>> = node.outputs.iter().copied().collect();
    let outputs = outputs.ok_or_else(|| node.unserved("a part that nobody asks for"))?;
    let (dtype, alias, cells) = cell(&node, x.dtype())?;
    let split = parts(&node, &x, &outputs, cells)?;
    let launches = split.launches((dtype, alias), |at| (whole(x), outputs[at].index), true)?;
    Ok(plan_with(&KERNEL, launches, Vec::new(), 0))
}
