//! `moe_combine`: the sum of a sparse layer's results by their weights and of the dense layer's by its share.
//!
//! It is tried behind `moe_down`, which takes the projections as well. It remains where that one is not served.

use super::moe;
use super::rule::{Fusion, Site};
use super::samples::FusedSample;
use super::uses::{Uses, maker};
use crate::dtype::DType;
use crate::op::{Add, Combine, Fill, Mul, Op, Sample, Sigmoid};

/// The row of [`super::FUSIONS`].
pub const FUSION: Fusion = Fusion { name: "moe_combine", find, samples };

fn find(uses: &Uses<'_>) -> Vec<Site> {
    uses.nodes().filter_map(|node| site(uses, node)).collect()
}

/// The place around a `combine`: its sum with the dense layer, and the sigmoid that gives the dense layer's share.
fn site(uses: &Uses<'_>, combine: moe::FoundNode<'_>) -> Option<Site> {
    let found = moe::sum(uses, combine)?;
    // `mul(dense, share)`: the second operand is the share.
    let share = *found.scaled.1.inputs.get(1)?;
    let (sigmoid, node) = maker(uses.graph, share)?;
    let alone = matches!(node.op, Op::Sigmoid(_)) && uses.only_user(share).is_some();
    let nodes = vec![found.combine.0, sigmoid, found.scaled.0, found.sum.0];
    alone.then(|| Site { ways: vec![vec![nodes]] })
}

/// Few rows and many, with different numbers of experts for each.
fn samples() -> Vec<Sample> {
    let case = |name: &str, n, slots: u64, width: u64| {
        let mut s = FusedSample::new(name, &FUSION);
        let rows = s.rows(DType::F16, slots * width);
        let experts = s.input(rows, Fill::Normal(1.0));
        let weights = s.rows(DType::F16, slots);
        let weights = s.input(weights, Fill::Around(0.4, 0.1));
        let sparse = s.node(Combine { k: slots as u32 }, &[experts, weights]);
        let gate = s.rows(DType::F16, 1);
        let gate = s.input(gate, Fill::Normal(2.0));
        let share = s.node(Sigmoid {}, &[gate]);
        let rows = s.rows(DType::F16, width);
        let dense = s.input(rows, Fill::Normal(1.0));
        let dense = s.node(Mul {}, &[dense, share]);
        let sum = s.node(Add {}, &[sparse, dense]);
        s.output(sum);
        s.finish(n, 0)
    };
    vec![case("two slots", 5, 2, 64), case("four slots, many rows", 130, 4, 256)]
}
