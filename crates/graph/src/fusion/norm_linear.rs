//! `norm_linear`: a normalised row and all projections of it, plain or gated, with the residual addition in front or
//! without, and of all rows or the last. The normalised row itself is stored nowhere.

use super::rule::{Fusion, Site, Way};
use super::samples::{FusedSample, constant_type};
use super::uses::{ResidualNorm, Uses};
use crate::dtype::DType;
use crate::graph::NodeId;
use crate::op::{Add, Fill, GatedLinear, LastRow, Linear, Op, RmsNorm, Sample};

/// Projections that one operator holds at most.
const MOST: usize = 3;

/// The row of [`super::FUSIONS`].
pub const FUSION: Fusion = Fusion { name: "norm_linear", find, samples };

/// Places at every norm of whole rows.
fn find(uses: &Uses<'_>) -> Vec<Site> {
    let norms = uses.nodes().filter_map(|node| uses.norm(node));
    norms.filter_map(|norm| site(uses, norm)).collect()
}

/// The place of a norm whose rows only projections take, directly or behind `last_row`.
///
/// Ways, best first: with the addition in front, all projections in one operator, then each with a norm of its own. Then the
/// same without the addition.
fn site(uses: &Uses<'_>, norm: ResidualNorm) -> Option<Site> {
    let (mut front, mut y) = (vec![norm.id], norm.y);
    // An output has to be stored, so that the norm is computed anyway.
    if uses.is_kept(y) {
        return None;
    }
    if let Some((id, node)) = uses.only_user(y)
        && matches!(node.op, Op::LastRow(_))
    {
        (front, y) = (vec![norm.id, id], node.outputs[0]);
    }
    let users = uses.users(y);
    let taken = |&id: &NodeId| {
        let node = uses.graph.node(id);
        uses.is_product(node) && uses.takes_first(node, y)
    };
    // Any other user would need the normalised row in memory.
    if users.is_empty() || users.len() > MOST || uses.is_kept(y) || !users.iter().all(taken) {
        return None;
    }
    let together = |front: &[NodeId]| -> Way { vec![front.iter().chain(users).copied().collect()] };
    // The norm is then computed in each of the operators.
    let apart = |front: &[NodeId]| -> Way {
        users.iter().map(|&user| front.iter().copied().chain([user]).collect()).collect()
    };
    let mut ways = Vec::new();
    for add in [norm.add.map(Some), Some(None)].into_iter().flatten() {
        let front: Vec<NodeId> = add.into_iter().chain(front.iter().copied()).collect();
        ways.push(together(&front));
        // With one user both ways are the same.
        if users.len() > 1 {
            ways.push(apart(&front));
        }
    }
    Some(Site { ways })
}

/// Norms and sums, of one projection, of three, and of a gated one.
fn samples() -> Vec<Sample> {
    let mut all = Vec::new();
    for (act, store, what) in [(DType::F16, DType::F16, "f16"), (DType::F32, DType::BF16, "f32")] {
        for (add, name) in [(false, "norm"), (true, "sum")] {
            all.push(plain(&format!("{name}, {what}"), act, store, add, &[256, 128, 128]));
        }
        all.push(plain(&format!("one product, {what}"), act, store, false, &[64]));
        all.push(gated_sample(&format!("gate, {what}"), act, store, false));
        all.push(gated_sample(&format!("gate of a sum, {what}"), act, store, true));
    }
    all
}

/// A row of 256 elements, normalised, and its projections.
fn plain(name: &str, act: DType, store: DType, add: bool, outputs: &[u64]) -> Sample {
    let mut s = FusedSample::new(name, &FUSION);
    let y = front(&mut s, act, add, false);
    for &width in outputs {
        let w = s.input(constant_type(store, &[width, 256]), Fill::Normal(0.1));
        let out = s.node(Linear::default(), &[y, w]);
        s.output(out);
    }
    s.finish(1, 0)
}

/// The last row of 256 elements, normalised, and its gated projection.
fn gated_sample(name: &str, act: DType, store: DType, add: bool) -> Sample {
    let mut s = FusedSample::new(name, &FUSION);
    let y = front(&mut s, act, add, true);
    let [gate, up] = [0, 1].map(|_| s.input(constant_type(store, &[128, 256]), Fill::Normal(0.1)));
    let out = s.node(GatedLinear {}, &[y, gate, up]);
    s.output(out);
    s.finish(1, 0)
}

/// The row, normalised; of a sum, which is an output too.
fn front(s: &mut FusedSample, act: DType, add: bool, last: bool) -> crate::graph::ValueId {
    let rows = s.rows(act, 256);
    let mut x = s.input(rows.clone(), Fill::Spiky(8.0));
    if add {
        let residual = s.input(rows, Fill::Normal(1.0));
        x = s.node(Add {}, &[x, residual]);
        s.output(x);
    }
    let w = s.input(constant_type(DType::BF16, &[256]), Fill::Around(1.0, 0.2));
    let y = s.node(RmsNorm::new(1e-5), &[x, w]);
    if last { s.node(LastRow {}, &[y]) } else { y }
}
