//! Products of many rows on matrix units: `matrix.wgsl`, beside the launch for one row. Activations are f16;
//! weights are f16, or packed ones that go by two planes of f16, so that nothing of them is lost.
//!
//! This is tiled multiplication with a multi-stage pipeline. A workgroup computes a tile of the result; each subgroup
//! of it has a part of the tile in registers. Rows and weights go through workgroup memory in steps along K, and the
//! loads of the steps ahead are issued before those at hand are multiplied.

mod shape;
mod text;

use crate::kernel::Request;
use crate::kernel::gemm_problem::GemmProblem;
use crate::kernel::source::{LaunchBuilder, plan_of, single_workgroup, unserved_error};
use crate::kernel::weights::BoundWeight;
use crate::plan::{Arg, Launch, NodePlan};
use shape::{DEPTH, Format, MatrixShape, Tile, UNIT};
use tapml_graph::packing::Code;
use tapml_graph::{DType, Extent, Packing, Result, TensorType};

/// Columns from which on a prompt has enough large tiles for a large GPU.
const MANY_COLUMNS: u32 = 3072;

/// Every text.
pub fn texts() -> impl Iterator<Item = String> {
    MatrixShape::all().map(|shape| text::compose_shape(shape).into_text())
}

/// The plan of a product of many rows.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let asked = GemmProblem::from_op(request.op, request.inputs).ok_or_else(|| unserved_error(request))?;
    let mut weights = vec![BoundWeight::from_input(request, 1)?];
    if asked.gated {
        weights.push(BoundWeight::from_input(request, 2)?);
    }
    let bias = if asked.gated { None } else { request.inputs.get(2) };
    let weights: Vec<&BoundWeight> = weights.iter().collect();
    let found = launch(request, &weights, bias).filter(|_| request.binds_whole());
    let (launch, chain) = found.ok_or_else(|| unserved_error(request))?;
    let lacks_bias = bias.is_none() && !asked.gated;
    let constants = if lacks_bias { vec![vec![0; 4]] } else { Vec::new() };
    Ok(NodePlan { constants, ..plan_of(launch, chain) })
}

/// The launch and the longest chain of additions; `None` if the kernel does not serve the node.
fn launch(request: &Request, weights: &[&BoundWeight], bias: Option<&TensorType>) -> Option<(Launch, u32)> {
    let (x, out) = (&request.inputs[0], request.outputs[0].dtype);
    let k = u32::try_from(x.shape[1].as_const()?).ok()?;
    let width = u32::try_from(weights[0].ty.shape[0].as_const()?).ok()?;
    let packing = weights[0].packing();
    let format = match packing {
        None if weights[0].ty.dtype == DType::F16 => Format::Plain,
        // Two planes of f16 do not hold what is left of the smallest numbers of 8 bits.
        Some(p) if p.zeros || !p.group.is_multiple_of(UNIT) => return None,
        Some(Packing { code: Code::Int4, .. }) => Format::Four,
        Some(Packing { code: Code::Int8, .. }) => Format::Eight,
        _ => return None,
    };
    // A constant number of rows is that of a graph without prompts, for which other kernels are taken.
    let many = x.shape[0].as_const().is_none();
    let fits = x.dtype == DType::F16 && k > 0 && k.is_multiple_of(DEPTH) && width > 0;
    if !request.info.features.matrices || !many || !fits {
        return None;
    }
    let gated = weights.len() > 1;
    let tile = Tile::from_format(format, gated, width < MANY_COLUMNS).with_row_length(k);
    let shape = MatrixShape { format, gated, tile };
    let mut launch = shape.launch(out).ok()?.input(0);
    launch = weights.iter().flat_map(|w| w.args()).fold(launch, LaunchBuilder::read);
    if !gated {
        launch = launch.optional(2, bias).with_presence(["HAS_BIAS", "B_DTYPE"], bias).ok()?;
    }
    launch = launch.bind(true, Arg::Output(0)).rows(&x.shape[0]).ok()?.set("K", k).set("O", width);
    if let Some(packing) = packing {
        launch = launch.with_packing(packing);
    }
    // A tile of a gated product gives half as many columns of the result as it multiplies.
    let columns = Extent::from_dim(u64::from(width.div_ceil(tile.columns / weights.len() as u32)));
    let groups = [Extent::ceil_div(x.shape[0].clone(), tile.rows), columns, single_workgroup()];
    let mut launch = launch.subgroups().groups(groups);
    text::compose_shape(shape).put_into(&mut launch.desc.source);
    launch.desc.check_limits(request.info).ok()?;
    // One addition in f32 for each accumulation block, those within a block, and those within one product.
    Some((launch, k / shape.run() + shape.run() / UNIT * shape.weight_tiles() + UNIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wgsl::parse_declarations;

    #[test]
    fn texts_are_valid() {
        for shape in MatrixShape::all() {
            let launch = shape.launch(DType::F16).unwrap();
            let launch = match shape.format {
                Format::Plain => launch,
                Format::Four => launch.with_packing(Packing::integers(4, 32, false)),
                Format::Eight => launch.with_packing(Packing::integers(8, 32, false)),
            };
            let mut launch = launch.groups([single_workgroup(), single_workgroup(), single_workgroup()]);
            text::compose_shape(shape).put_into(&mut launch.desc.source);
            let found = parse_declarations(&launch.desc.source, true).unwrap();
            assert_eq!(found.workgroup_memory, Some(shape.memory()));
        }
    }
}
