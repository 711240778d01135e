//! `moe_router`: the norm in front of a sparse layer, the router and its choice of experts, and the share of the dense
//! layer beside them. The normalised rows are an output.

use super::moe;
use super::rule::{Fusion, Site};
use super::samples::{FusedSample, constant_type};
use super::uses::Uses;
use crate::dtype::DType;
use crate::op::{Fill, Linear, RmsNorm, Route, Sample, Scores, Sigmoid};

/// The row of [`super::FUSIONS`].
pub const FUSION: Fusion = Fusion { name: "moe_router", find, samples };

/// Norms whose rows a sparse layer with a dense one beside it takes; see [`moe::layer`].
fn find(uses: &Uses<'_>) -> Vec<Site> {
    let norms = uses.nodes().filter_map(|node| uses.norm(node));
    let sites = norms.filter_map(|norm| {
        let layer = moe::layer(uses, &norm)?;
        let nodes = [layer.router, layer.route, layer.gate, layer.sigmoid].map(|(id, _)| id);
        let way = vec![std::iter::once(norm.id).chain(nodes).collect()];
        Some(Site { ways: vec![way] })
    });
    sites.collect()
}

/// Scores by softmax and by sigmoid, normalised and not, and a number of experts that is no power of two.
fn samples() -> Vec<Sample> {
    let case = |name: &str, act, store, experts: u64, route: Route| {
        let mut s = FusedSample::new(name, &FUSION);
        let rows = s.rows(act, 256);
        let x = s.input(rows, Fill::Spiky(8.0));
        let w = s.input(constant_type(DType::BF16, &[256]), Fill::Around(1.0, 0.2));
        let y = s.node(RmsNorm::new(1e-6), &[x, w]);
        let router = s.input(constant_type(store, &[experts, 256]), Fill::Normal(0.1));
        let logits = s.node(Linear::default(), &[y, router]);
        let routed = s.nodes(route, &[logits], 2);
        let gate = s.input(constant_type(store, &[1, 256]), Fill::Normal(0.1));
        let share = s.node(Linear::default(), &[y, gate]);
        let share = s.node(Sigmoid {}, &[share]);
        [y, routed[0], routed[1], share].into_iter().for_each(|value| s.output(value));
        s.finish(1, 0)
    };
    let route = |k, scores, normalize| Route { k, scores, normalize, scale: 1.0, groups: None };
    vec![
        // Sixty is no multiple of 32, a usual number of lanes.
        case("f16, four of sixty", DType::F16, DType::F16, 60, route(4, Scores::Softmax, false)),
        case("f32, two of eight, normalised", DType::F32, DType::F32, 8, route(2, Scores::Softmax, true)),
        case("sigmoid", DType::F16, DType::BF16, 16, route(3, Scores::Sigmoid, true)),
    ]
}
