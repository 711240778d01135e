//! Neighbouring nodes as one launch in runs of many rows: products of one input, and the rotation of queries as they are
//! read for attention. Keys are rotated on their way to the cache.

use super::{Finder, Joins};
use crate::kernel::cuda::attend;
use crate::kernel::cuda::linear::MOST;
use crate::kernel::cuda::matmul::{Matmul, Projection};
use crate::plan::When;
use tapml_graph::{DType, Op, Origin, ValueId};

impl Finder<'_> {
    /// Joins all products of an input, at the place of the first one.
    pub(super) fn projected(&self, at: usize, joins: &mut Joins) {
        let Some(&x) = self.graph.nodes()[at].inputs.first() else { return };
        let users = &self.users[x.0 as usize];
        if users.first().is_none_or(|user| user.0 as usize != at) || !self.one_row(x) {
            return;
        }
        let found: Vec<_> = users
            .iter()
            .filter(|&&user| self.graph.node(user).inputs.first() == Some(&x))
            .filter_map(|&user| {
                let node = self.graph.node(user);
                let out = self.graph.value(*node.outputs.first()?).ty.dtype;
                Some((user, node, Projection::of(&node.op, &self.graph.input_types(node), out)?))
            })
            .collect();
        let products: Vec<&Matmul> = found.iter().map(|(_, _, projection)| &projection.product).collect();
        // What else a product takes must be there when the first one runs.
        let weights = |value: &ValueId| matches!(self.graph.value(*value).origin, Origin::Weight);
        let early = found.iter().all(|(_, node, _)| node.inputs[1..].iter().all(weights));
        if !early || !(2..=MOST).contains(&found.len()) || found[0].0.0 as usize != at {
            return;
        }
        let Some(kernel) = Matmul::joined(&products).and_then(|product| product.kernel(self.info)) else {
            return;
        };
        let mut values = vec![x];
        for (_, node, projection) in &found {
            values.extend(projection.weights.iter().map(|&k| node.inputs[k]));
        }
        values.extend(found.iter().filter_map(|(_, node, projection)| Some(node.inputs[projection.bias?])));
        values.extend(found.iter().map(|(_, node, _)| node.outputs[0]));
        let nodes = found.iter().map(|(user, ..)| user.0 as usize);
        joins.replaced_many.extend(nodes);
        joins.add(at, When::ManyRows, kernel, values);
    }

    /// Joins attention with the rotations and the appending before it.
    pub(super) fn attended_many(&self, at: usize, joins: &mut Joins) -> Option<()> {
        let node = &self.graph.nodes()[at];
        let Op::Attention(op) = &node.op else { return None };
        let [q, keys, values] = node.inputs[..] else { return None };
        if self.graph.value(q).ty.dtype != DType::F16 || !self.one_row(q) {
            return None;
        }
        let found = self.rotated_and_appended(op, [q, keys, values])?;
        let [q, k, v, angles] = found.values;
        let attend = attend::kernel(op, true, self.info)?;
        let keep = attend::keep(op, self.info)?;
        joins.replaced_many.extend(found.nodes);
        joins.replaced_many.insert(at);
        joins.add(at, When::ManyRows, keep, vec![k, v, angles, keys, values]);
        joins.add(at, When::ManyRows, attend, vec![q, angles, keys, values, node.outputs[0]]);
        Some(())
    }
}
