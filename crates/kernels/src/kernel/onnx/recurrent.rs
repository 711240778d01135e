//! `LSTM`: one workgroup for each sequence and direction, which keeps the state in its memory. The three outputs are made as
//! one and copied to where they belong, as each may be missing.

use super::joining::{Cell, Runs};
use super::{Node, Placed, count, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::source::{Kernel, LaunchBuilder, one};
use crate::plan::{Arg, NodePlan, Scratch};
use tapml_device::BindingKind;
use tapml_graph::{DType, Error, Extent, Result};

const KERNEL: Kernel = Kernel {
    math: true,
    workgroup_memory: 12288,
    ..Kernel::flat("onnx/lstm", "onnx/lstm.wgsl", include_str!("lstm.wgsl"))
};

/// Hidden units that the workgroup's memory holds.
const MOST_HIDDEN: u32 = 1024;

pub fn plan_lstm(request: &Request) -> Result<NodePlan> {
    let node = Node::of(request)?;
    node.reads(&["hidden_size", "direction", "layout", "input_forget"])?;
    let dtype = node.float_dtype()?;
    let (x, w, r) = (node.input(0)?, node.input(1)?, node.input(2)?);
    if node.optional(4).is_some() || node.optional(7).is_some() {
        return Err(node.unserved("sequences of several lengths, or peepholes"));
    }
    if node.int("layout", 0)? != 0 || node.int("input_forget", 0)? != 0 {
        return Err(node.unserved("batches in front, or coupled gates"));
    }
    let (&[steps, batch, inputs], &[_, _, hidden]) = (x.sizes()?.as_slice(), r.sizes()?.as_slice()) else {
        return Err(Error::invalid(format!("{} with {}", x.ty, r.ty)));
    };
    if hidden > MOST_HIDDEN {
        return Err(node.unserved(&format!("{hidden} hidden units")));
    }
    let (directions, reverse) = match node.text("direction", "forward")? {
        "forward" => (1, 0u32),
        "reverse" => (1, 1),
        "bidirectional" => (2, 0),
        other => return Err(node.unserved(&format!("the direction `{other}`"))),
    };
    node.takes(1, dtype, &[directions, 4 * hidden, inputs])?;
    node.takes(2, dtype, &[directions, 4 * hidden, hidden])?;
    node.may_take(3, dtype, &[directions, 8 * hidden])?;
    node.may_take(5, dtype, &[directions, batch, hidden])?;
    node.may_take(6, dtype, &[directions, batch, hidden])?;
    let (first, last) = (count(&[steps, directions, batch, hidden])?, count(&[directions, batch, hidden])?);
    let total = u64::from(first) + 2 * u64::from(last);
    let given = |place: usize| node.optional(place);
    let arg = |given: Option<Placed>| given.map_or(Arg::Constant(0), whole);
    let launch = KERNEL.launch(dtype, dtype)?.read(whole(x)).read(whole(w)).read(whole(r));
    let launch = launch.read(arg(given(3))).read(arg(given(5))).read(arg(given(6)));
    let launch = launch.scratch(0, BindingKind::ReadWrite).set("STEPS", steps).set("BATCH", batch);
    let launch = launch.set("INPUTS", inputs).set("HIDDEN", hidden).set("DIRECTIONS", directions);
    let launch = launch.set("REVERSE", reverse).set("HAS_BIAS", u32::from(given(3).is_some()));
    let launch =
        launch.set("HAS_H", u32::from(given(5).is_some())).set("HAS_C", u32::from(given(6).is_some()));
    let grid = [Extent::of(u64::from(batch)), Extent::of(u64::from(directions)), one()];
    let mut launches = vec![launch.groups(grid)];
    let state = [directions, batch, hidden];
    let all = [steps, directions, batch, hidden];
    let parts = [(0, &all[..], 0), (1, &state[..], first), (2, &state[..], first.saturating_add(last))];
    for (place, sizes, from) in parts {
        if node.outputs.get(place).copied().flatten().is_none() {
            continue;
        }
        let y = node.gives(place, dtype, sizes)?;
        let cell = if dtype == DType::F16 { Cell::Half } else { Cell::Word };
        let bind = |launch: LaunchBuilder| launch.scratch(0, BindingKind::Read).output(y.index);
        launches.push(Runs::one(y.count()?, from).launch(cell, bind)?);
    }
    let size = if dtype == DType::F16 { 2 } else { 4 };
    let chain = inputs.saturating_add(hidden).saturating_add(steps);
    let plan = plan_with(&KERNEL, launches, vec![vec![0; 4]], chain);
    Ok(NodePlan { scratch: vec![Scratch::Temporary(Extent::of((total * size).next_multiple_of(4)))], ..plan })
}
