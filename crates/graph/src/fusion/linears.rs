//! `linears`: the projections of one input, such as queries, keys and values.

use super::rule::{Fusion, Site};
use super::samples::{FusedSample, constant_type};
use super::uses::Uses;
use crate::dtype::DType;
use crate::graph::{NodeId, ValueId};
use crate::op::{Fill, Linear, Sample};

/// Projections that one operator holds at most.
const MOST: usize = 3;

/// The row of [`super::FUSIONS`].
pub const FUSION: Fusion = Fusion { name: "linears", find, samples };

/// Places at every value of the graph.
fn find(uses: &Uses<'_>) -> Vec<Site> {
    let values = (0..uses.graph.values().len() as u32).map(ValueId);
    values.filter_map(|value| site(uses, value)).collect()
}

/// The place of two or three projections that take the value `x` and have as many rows as the run.
///
/// Other users of `x` may stand beside them.
fn site(uses: &Uses<'_>, x: ValueId) -> Option<Site> {
    let linear = |&&id: &&NodeId| {
        let node = uses.graph.node(id);
        uses.is_linear(node) && uses.takes_first(node, x)
    };
    let users: Vec<NodeId> = uses.users(x).iter().filter(linear).copied().collect();
    let fits = (2..=MOST).contains(&users.len()) && uses.has_rows_of_run(x);
    fits.then(|| Site { ways: vec![vec![users]] })
}

/// Two projections and three, with biases and without, of several numbers of rows.
fn samples() -> Vec<Sample> {
    let case = |name: &str, n, outputs: &[u64], bias: bool| {
        let mut s = FusedSample::new(name, &FUSION);
        let rows = s.rows(DType::F16, 256);
        let x = s.input(rows, Fill::Normal(1.0));
        for &width in outputs {
            let mut given = vec![x, s.input(constant_type(DType::F16, &[width, 256]), Fill::Normal(0.1))];
            if bias {
                given.push(s.input(constant_type(DType::F16, &[width]), Fill::Normal(1.0)));
            }
            let out = s.node(Linear::default(), &given);
            s.output(out);
        }
        s.finish(n, 0)
    };
    vec![
        case("queries, keys, values", 5, &[256, 128, 128], false),
        case("two, biases", 130, &[64, 192], true),
        case("another tile of rows", 129, &[128, 64, 64], false),
    ]
}
