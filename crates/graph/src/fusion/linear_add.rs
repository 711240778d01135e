//! `linear_add`: a projection and what it is added to, such as the residual stream.
//!
//! The projection's own result leaves the operator nowhere. The sum has the type of that result, so that nothing stretches.

use super::rule::{Fusion, Site};
use super::samples::{FusedSample, constant_type};
use super::uses::{Uses, maker};
use crate::dtype::DType;
use crate::graph::{Node, NodeId};
use crate::op::{Add, Fill, Linear, Sample};

/// The row of [`super::FUSIONS`].
pub const FUSION: Fusion = Fusion { name: "linear_add", find, samples };

fn find(uses: &Uses<'_>) -> Vec<Site> {
    uses.nodes().filter_map(|node| site(uses, node)).collect()
}

/// The place where `node` adds the result of a projection that nothing else uses.
///
/// The projection has as many rows as the run.
fn site(uses: &Uses<'_>, (id, node): (NodeId, &Node)) -> Option<Site> {
    if !uses.is_whole_add(node) {
        return None;
    }
    // The second operand is what layers add; the first is tried where that is no projection.
    let product = node.inputs.iter().rev().find_map(|&term| {
        let (product, of) = maker(uses.graph, term)?;
        let alone = uses.only_user(term).is_some() && uses.has_rows_of_run(term);
        (alone && uses.is_linear(of)).then_some(product)
    })?;
    Some(Site { ways: vec![vec![vec![product, id]]] })
}

/// Weights of several dtypes, with a bias and without.
fn samples() -> Vec<Sample> {
    let case = |name: &str, act, store, bias: bool| {
        let mut s = FusedSample::new(name, &FUSION);
        let rows = s.rows(act, 256);
        let x = s.input(rows, Fill::Normal(1.0));
        let mut given = vec![x, s.input(constant_type(store, &[128, 256]), Fill::Normal(0.1))];
        if bias {
            given.push(s.input(constant_type(DType::F16, &[128]), Fill::Normal(1.0)));
        }
        let product = s.node(Linear::default(), &given);
        let rows = s.rows(act, 128);
        // Residual streams of models have a few large elements.
        let residual = s.input(rows, Fill::Spiky(8.0));
        let sum = s.node(Add {}, &[residual, product]);
        s.output(sum);
        s.finish(1, 0)
    };
    vec![
        case("f16", DType::F16, DType::F16, false),
        case("bias", DType::F16, DType::F16, true),
        case("f32 rows, bf16 weights", DType::F32, DType::BF16, false),
    ]
}
