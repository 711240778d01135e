//! The joins of WGSL kernels: a normalisation, of a sum or not, in the products that take its result; and attention
//! with the rotations and the appending in front. All values are rounded where the nodes alone round them.

use super::{Bound, Finder, Joins};
use crate::kernel::attention::row::{self, Found};
use crate::kernel::attention::{keep, split};
use crate::kernel::product::row::{self as product, Norm, Product, Projection};
use crate::kernel::settings::Setting;
use crate::plan::{NodePlan, When};
use std::sync::Arc;
use tapml_device::{Grid, KernelDesc};
use tapml_graph::op::Attention;
use tapml_graph::{DType, Node, NodeId, Op, ValueId};

/// A normalisation of rows, or of a sum of two.
struct Stream {
    norm: Norm,
    /// What is normalised: a row, or two terms.
    terms: Vec<ValueId>,
    weight: ValueId,
    /// The sum of the terms, if there are two.
    sum: Option<ValueId>,
    /// What comes of it.
    y: ValueId,
}

/// An attention, its activations, its kernel's setting, the nodes in front of it, and the values that a launch of all binds
/// first.
type Parts<'a> = (&'a Attention, DType, Setting, [usize; 4], Vec<ValueId>);

/// A kernel and the values that it binds.
type Launch = ((KernelDesc, Grid), Vec<ValueId>);

impl Finder<'_> {
    /// Joins a normalisation with the products that take its result: in one launch, or in one for each product where the
    /// device does not bind as many buffers.
    pub(super) fn normalised_rows(&self, at: usize, plans: &[Arc<NodePlan>], joins: &mut Joins) {
        let Some(stream) = self.row_stream(&self.graph.nodes()[at]) else { return };
        let (last, y) = self.last_row(stream.y);
        let users = self.users[y.0 as usize].as_slice();
        let kept = [y, stream.y].iter().any(|v| self.kept.contains(v));
        let served = users.iter().all(|user| product::serves(&plans[user.0 as usize]));
        if users.is_empty() || users.len() > product::MOST || kept || !served {
            return;
        }
        let stream = Stream { y, ..stream };
        let together = self.row_products(&stream, users).map(|launch| vec![launch]);
        let each = || users.iter().map(|user| self.row_products(&stream, &[*user])).collect();
        let Some(launches) = together.or_else(each) else { return };
        joins.replaced.extend(users.iter().map(|user| user.0 as usize).chain([at]).chain(last));
        launches.into_iter().for_each(|(kernel, values)| joins.add(at, When::OneRow, kernel, values));
    }

    fn row_stream(&self, node: &Node) -> Option<Stream> {
        let (eps, offset, terms, weight, sum, y) = match &node.op {
            Op::RmsNorm(op) if op.group.is_none() => {
                (op.eps, op.offset, node.inputs[..1].to_vec(), *node.inputs.get(1)?, None, node.outputs[0])
            }
            Op::AddRmsNorm(op) => {
                let terms = node.inputs[..2].to_vec();
                (op.eps, op.offset, terms, *node.inputs.get(2)?, Some(node.outputs[0]), node.outputs[1])
            }
            _ => return None,
        };
        let dtype = self.graph.value(weight).ty.dtype;
        let norm = Norm { eps, offset, dtype, of_sum: sum.is_some() };
        self.one_row(terms[0]).then_some(Stream { norm, terms, weight, sum, y })
    }

    /// The launch of products that take the normalised row.
    fn row_products(&self, stream: &Stream, users: &[NodeId]) -> Option<Launch> {
        let found: Vec<(&Node, Projection)> = users
            .iter()
            .map(|&user| {
                let node = self.graph.node(user);
                let once = node.inputs.iter().filter(|&&v| v == stream.y).count() == 1;
                let out = self.graph.value(*node.outputs.first()?).ty.dtype;
                let projection = Projection::of(&node.op, &self.graph.input_types(node), out)?;
                (node.inputs[0] == stream.y && once).then_some((node, projection))
            })
            .collect::<Option<_>>()?;
        let all: Vec<&Product> = found.iter().map(|(_, projection)| &projection.product).collect();
        let product = Product::joined(&all)?.of_normalised(stream.norm);
        let mut values = stream.terms.clone();
        values.push(stream.weight);
        for (node, projection) in &found {
            values.extend(projection.weights.iter().map(|&k| node.inputs[k]));
        }
        values.extend(found.iter().filter_map(|(node, projection)| Some(node.inputs[projection.bias?])));
        values.extend(stream.sum);
        values.extend(found.iter().map(|(node, _)| node.outputs[0]));
        Some((product.kernel(self.info)?, values))
    }

    /// Joins attention over parts of the keys with the rotations and the appending before it.
    pub(super) fn attended_parts(&self, at: usize, plans: &[Arc<NodePlan>], joins: &mut Joins) {
        let Some((op, act, setting, nodes, values)) = self.attention_parts(at, &plans[at]) else { return };
        let Some(merge) = plans[at].launches.get(1) else { return };
        let output = self.graph.nodes()[at].outputs[0];
        let bound = values.into_iter().map(Bound::Value);
        let found = row::kernel(op, act, self.info);
        if let Some(Found { desc, groups, together: Some(bytes) }) = found {
            let bound = bound.chain([Bound::Kept(bytes), Bound::Value(output)]).collect();
            joins.add_bound(at, When::OneRow, (desc, groups), bound);
        } else {
            // The launch that merges takes as many parts as the setting says.
            let row = found.filter(|_| setting.is_default()).map(|found| (found.desc, found.groups));
            let Some(parts) = row.or_else(|| split::joined(op, act, setting, self.info)) else { return };
            joins.add_bound(at, When::OneRow, parts, bound.chain([Bound::Scratch(0)]).collect());
            let kernel = (merge.desc.clone(), merge.groups.clone());
            joins.add_bound(at, When::OneRow, kernel, vec![Bound::Scratch(0), Bound::Value(output)]);
        }
        joins.replaced.extend(nodes);
        joins.replaced.insert(at);
    }

    /// Joins the rotations and the appending before attention of many rows, where attention is a GPU's own.
    pub(super) fn kept_rows(&self, at: usize, plans: &[Arc<NodePlan>], joins: &mut Joins) -> Option<()> {
        let node = &self.graph.nodes()[at];
        if Setting::of(&plans[at].kernel).0 != split::NAME {
            return None;
        }
        let Op::Attention(op) = &node.op else { return None };
        let [rotated, keys, values] = node.inputs[..] else { return None };
        let found = self.rotated_and_appended(op, [rotated, keys, values])?;
        let act = self.graph.value(rotated).ty.dtype;
        let alike = found.values[..3].iter().all(|v| self.graph.value(*v).ty.dtype == act);
        let kernel = keep::kernel(op, act, self.info).filter(|_| alike && self.one_row(rotated))?;
        let [q, k, v, angles] = found.values;
        // There everything that it takes is.
        let last = *found.nodes.iter().max()?;
        joins.replaced_many.extend(found.nodes);
        joins.add(last, When::ManyRows, kernel, vec![q, k, v, angles, rotated, keys, values]);
        Some(())
    }

    fn attention_parts(&self, at: usize, plan: &NodePlan) -> Option<Parts<'_>> {
        let node = &self.graph.nodes()[at];
        let Op::Attention(op) = &node.op else { return None };
        let [q, keys, values] = node.inputs[..] else { return None };
        let (kernel, setting) = Setting::of(&plan.kernel);
        if kernel != split::NAME || !self.one_row(q) || !split::is_plain(op) {
            return None;
        }
        let act = self.graph.value(q).ty.dtype;
        let (rope_q, q, angles) = self.rotated(q, op.head_dim)?;
        let (append_k, k) = self.appended(keys)?;
        let (append_v, v) = self.appended(values)?;
        let (rope_k, k, others) = self.rotated(k, op.head_dim)?;
        if others != angles {
            return None;
        }
        let bound = vec![q, k, v, angles, keys, values];
        Some((op, act, setting, [rope_q, rope_k, append_k, append_v], bound))
    }
}
