//! `moe_down`: the projections down of the chosen experts and of the dense layer beside them, and the sum of both,
//! added to the residual stream or not.

use super::rule::{Fusion, Site, Way};
use super::samples::{FusedSample, constant_type};
use super::uses::Uses;
use super::{moe, moe_gated_linear};
use crate::dtype::DType;
use crate::graph::NodeId;
use crate::op::{Add, Combine, ExpertLinear, Fill, Linear, Mul, Sample};

/// The row of [`super::FUSIONS`].
pub const FUSION: Fusion = Fusion { name: "moe_down", find, samples };

fn find(uses: &Uses<'_>) -> Vec<Site> {
    uses.nodes().filter_map(|node| site(uses, node)).collect()
}

/// The place around a `combine`: with the residual addition behind it if there is one, and without.
fn site(uses: &Uses<'_>, combine: moe::FoundNode<'_>) -> Option<Site> {
    let found = moe::sum(uses, combine)?;
    let [experts, dense] = found.down;
    let nodes = [experts, dense, found.combine, found.scaled, found.sum].map(|(id, _)| id);
    let sum = found.sum.1.outputs[0];
    // The residual stream is the other operand of an addition of the sum alone.
    let residual = uses.only_user(sum).filter(|(_, node)| uses.is_whole_add(node));
    let with = residual.map(|(id, _)| -> Way { vec![nodes.iter().copied().chain([id]).collect()] });
    let alone: Vec<NodeId> = nodes.to_vec();
    Some(Site { ways: with.into_iter().chain([vec![alone]]).collect() })
}

/// With a residual and without, for a dense layer of the experts' size and of another.
fn samples() -> Vec<Sample> {
    let case = |name: &str, act, store, dense: u64, residual: bool| {
        let slots = 2u64;
        let mut s = FusedSample::new(name, &FUSION);
        let rows = s.rows(act, slots * 128);
        let x = s.input(rows, Fill::Normal(1.0));
        let down = s.input(constant_type(store, &[8, 256, 128]), Fill::Normal(0.1));
        let indices = s.input(moe_gated_linear::expert_ids_type(slots), Fill::Below(8));
        let experts = s.node(ExpertLinear {}, &[x, down, indices]);
        let rows = s.rows(act, dense);
        let d = s.input(rows, Fill::Normal(1.0));
        let down = s.input(constant_type(store, &[256, dense]), Fill::Normal(0.1));
        let d = s.node(Linear::default(), &[d, down]);
        let weights = s.rows(act, slots);
        let weights = s.input(weights, Fill::Around(0.4, 0.1));
        let sparse = s.node(Combine { k: slots as u32 }, &[experts, weights]);
        let share = s.rows(act, 1);
        let share = s.input(share, Fill::Around(0.5, 0.2));
        let d = s.node(Mul {}, &[d, share]);
        let mut sum = s.node(Add {}, &[sparse, d]);
        if residual {
            let rows = s.rows(act, 256);
            let residual = s.input(rows, Fill::Spiky(8.0));
            sum = s.node(Add {}, &[residual, sum]);
        }
        s.output(sum);
        s.finish(1, 0)
    };
    vec![
        case("f16, residual", DType::F16, DType::F16, 256, true),
        case("f16", DType::F16, DType::F16, 128, false),
        case("f32 rows", DType::F32, DType::BF16, 256, true),
    ]
}
