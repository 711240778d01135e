//! Convolutions, computed as they are defined.

use super::window::{Window, windowed};
use super::{Node, count, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::source::Kernel;
use crate::plan::{Arg, NodePlan};
use tapml_graph::{Dim, Error, Extent, Result};

const DIRECT: Kernel = windowed!("convolution", "convolution.wgsl");
const TRANSPOSED: Kernel = windowed!("transposed", "transposed.wgsl");

/// Channels of the output that an invocation treats.
const TILE: u32 = 4;

const READ: [&str; 7] =
    ["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides", "output_padding"];

/// What both kinds have in common: sizes of input, weight and output, groups, and the bias.
struct Parts {
    x: Vec<u32>,
    w: Vec<u32>,
    y: Vec<u32>,
    groups: u32,
}

fn parts(node: &Node) -> Result<Parts> {
    let dtype = node.float_dtype()?;
    let (x, w, y) = (node.input(0)?, node.input(1)?, node.output(0)?);
    if w.dtype() != dtype || y.dtype() != dtype {
        return Err(node.unserved("weights of another dtype"));
    }
    let groups = u32::try_from(node.int("group", 1)?).ok().filter(|&groups| groups > 0);
    let groups = groups.ok_or_else(|| Error::invalid("`group` is no positive integer"))?;
    let parts = Parts { x: x.sizes()?, w: w.sizes()?, y: y.sizes()?, groups };
    let ranks = [parts.x.len(), parts.w.len(), parts.y.len()];
    if !ranks.iter().all(|&rank| rank == ranks[0] && rank > 2) {
        return Err(node.unserved(&format!("{} with {}", x.ty, w.ty)));
    }
    node.may_take(2, dtype, &parts.y[1..2])?;
    match parts.x[0] == parts.y[0] {
        true => Ok(parts),
        false => Err(Error::invalid(format!("{} from {}", y.ty, x.ty))),
    }
}

pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = Node::of(request)?;
    node.reads(&READ[..6])?;
    let Parts { x, w, y, groups } = parts(&node)?;
    let window = Window::of(&node, (&x[2..], &y[2..], &w[2..]), false)?;
    let (channels, outputs) = (w[1], w[0] / groups);
    if channels.checked_mul(groups) != Some(x[1]) || outputs * groups != w[0] || outputs == 0 || y[1] != w[0]
    {
        return Err(Error::invalid(format!("{x:?} with a weight of {w:?} in {groups} groups")));
    }
    let (dtype, bias) = (node.float_dtype()?, node.optional(2));
    let places = count(&y[2..])?;
    let launch = DIRECT.launch(dtype, dtype)?.read(whole(node.input(0)?)).read(whole(node.input(1)?));
    let launch = launch.read(bias.map_or(Arg::Constant(0), whole)).output(node.output(0)?.index);
    let tiles = outputs.div_ceil(TILE);
    let launch = launch.set("CHANNELS", channels).set("OUTPUTS", outputs).set("GROUPS", groups);
    let launch = launch.set("TILES", tiles).set("PLACES", places).set("HAS_BIAS", u32::from(bias.is_some()));
    let launch = window.set(launch);
    let rows = groups.saturating_mul(tiles);
    let grid = [
        Extent::of(u64::from(places.div_ceil(256))),
        Extent::of(u64::from(rows)),
        Extent::of(u64::from(y[0])),
    ];
    let chain = channels.saturating_mul(count(&w[2..])?).saturating_add(1);
    Ok(plan_with(&DIRECT, vec![launch.groups(grid)], vec![vec![0; 4]], chain))
}

pub fn plan_transposed(request: &Request) -> Result<NodePlan> {
    let node = Node::of(request)?;
    node.reads(&[&READ[..], &["output_shape"]].concat())?;
    let Parts { x, w, y, groups } = parts(&node)?;
    let window = Window::of(&node, (&x[2..], &y[2..], &w[2..]), true)?;
    let (channels, outputs) = (w[0] / groups, w[1]);
    if x[1] != w[0] || channels * groups != w[0] || outputs.checked_mul(groups) != Some(y[1]) {
        return Err(Error::invalid(format!("{x:?} with a weight of {w:?} in {groups} groups")));
    }
    let (dtype, bias) = (node.float_dtype()?, node.optional(2));
    let elements = count(&y)?;
    let launch = TRANSPOSED.launch(dtype, dtype)?.read(whole(node.input(0)?)).read(whole(node.input(1)?));
    let launch = launch.read(bias.map_or(Arg::Constant(0), whole)).output(node.output(0)?.index);
    let launch = launch.set("COUNT", elements).set("CHANNELS", channels).set("OUTPUTS", outputs);
    let launch = launch.set("GROUPS", groups).set("HAS_BIAS", u32::from(bias.is_some()));
    let launch = window.set(launch);
    let chain = channels.saturating_mul(count(&w[2..])?).saturating_add(1);
    Ok(plan_with(&TRANSPOSED, vec![launch.flat(Dim::from(u64::from(elements)))], vec![vec![0; 4]], chain))
}
