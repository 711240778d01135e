//! Neighbouring nodes as one launch. In runs of one row: a kernel that normalises its input, projects it by several weights
//! or adds what comes in over the residual path, and one that rotates, appends and attends. Each node's own launches serve
//! every other run, and those whose nodes are looked at one by one. This file has the CUDA kernels' joins for one row, `many`
//! those for many, `experts` those of sparse layers, `rows` those of WGSL.

mod experts;
mod many;
mod rows;

use super::{Compiler, Home};
use crate::kernel::cuda::attention;
use crate::kernel::cuda::linear::{MOST, Norm, Product, Projection};
use crate::plan::{NodePlan, When};
use crate::program::{Content, Slice, Step};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::op::Attention;
use tapml_graph::{DType, Dim, Graph, Node, NodeId, Op, Origin, Result, Symbol, ValueId};

/// Launches that stand for several nodes.
#[derive(Default)]
pub(super) struct Joins {
    /// By the node at whose place they run.
    launches: HashMap<usize, Vec<Joined>>,
    /// The nodes that they stand for in runs of one row.
    replaced: HashSet<usize>,
    /// Those that they stand for in runs of many.
    replaced_many: HashSet<usize>,
    /// The norms whose sum a launch in front of them makes, in runs of one row.
    sums: HashSet<usize>,
}

/// One launch.
struct Joined {
    desc: KernelDesc,
    groups: Grid,
    when: When,
    /// One per binding but the symbols.
    bound: Vec<Bound>,
}

/// What a joined launch binds.
#[derive(Clone, Copy)]
enum Bound {
    Value(ValueId),
    /// Scratch memory of the node at whose place it runs.
    Scratch(usize),
    /// So many bytes that only such launches use, zero before the first run.
    Kept(u64),
}

impl Joined {
    fn values(&self) -> impl Iterator<Item = ValueId> {
        self.bound.iter().filter_map(|bound| match *bound {
            Bound::Value(value) => Some(value),
            Bound::Scratch(_) | Bound::Kept(_) => None,
        })
    }
}

impl Joins {
    /// The launches that a graph's nodes, which are planned like this, can be joined to on such a device.
    pub(super) fn of(graph: &Graph, plans: &[Arc<NodePlan>], info: &DeviceInfo) -> Joins {
        let mut joins = Joins::default();
        let finder = Finder::new(graph, info);
        for at in 0..graph.nodes().len() {
            if info.features.cuda.is_some() {
                finder.normalised(at, &mut joins);
                finder.sparse(at, &mut joins);
                finder.sparse_sum(at, &mut joins);
                finder.attended(at, &mut joins);
                finder.projected(at, &mut joins);
                finder.attended_many(at, &mut joins);
            } else if info.features.subgroups.is_some() {
                finder.normalised_rows(at, plans, &mut joins);
                finder.attended_parts(at, plans, &mut joins);
                finder.kept_rows(at, plans, &mut joins);
            }
        }
        joins
    }

    /// At which number of rows a node's own launch remains.
    pub(super) fn remaining(&self, node: usize, when: When) -> Option<When> {
        let (one, many) = (self.replaced.contains(&node), self.replaced_many.contains(&node));
        match (when, one, many) {
            (When::Always, true, true) | (When::OneRow, true, _) | (When::ManyRows, _, true) => None,
            (When::Always, true, false) => Some(When::ManyRows),
            (When::Always, false, true) => Some(When::OneRow),
            _ => Some(when),
        }
    }

    /// The last node at whose place each value is used, if any does.
    pub(super) fn last_uses(&self, graph: &Graph) -> Vec<Option<usize>> {
        let last = |users: &Vec<NodeId>| users.last().map(|node| node.0 as usize);
        let mut uses: Vec<Option<usize>> = graph.users().iter().map(last).collect();
        for (&at, launches) in &self.launches {
            for value in launches.iter().flat_map(Joined::values) {
                let use_of = &mut uses[value.0 as usize];
                *use_of = (*use_of).max(Some(at));
            }
        }
        uses
    }

    fn add(&mut self, at: usize, when: When, kernel: (KernelDesc, Grid), values: Vec<ValueId>) {
        self.add_bound(at, when, kernel, values.into_iter().map(Bound::Value).collect());
    }

    fn add_bound(&mut self, at: usize, when: When, kernel: (KernelDesc, Grid), bound: Vec<Bound>) {
        let (desc, groups) = kernel;
        self.launches.entry(at).or_default().push(Joined { desc, groups, when, bound });
    }
}

impl Compiler<'_> {
    /// Adds the joined launches that run at the place of a node with this scratch memory; gives the values that they use.
    pub(super) fn joined(&mut self, index: usize, node: &Node, scratch: &[u32]) -> Result<Vec<ValueId>> {
        let mut used = Vec::new();
        for launch in self.joins.launches.remove(&index).unwrap_or_default() {
            let mut bindings = Vec::with_capacity(launch.bound.len() + 1);
            for &bound in &launch.bound {
                bindings.push(match bound {
                    Bound::Value(value) => self.joined_value(value)?,
                    Bound::Scratch(at) => Slice { buffer: scratch[at], offset: 0, size: 0 },
                    Bound::Kept(bytes) => Slice { buffer: self.kept_bytes(bytes)?, offset: 0, size: 0 },
                });
            }
            bindings.push(Slice { buffer: self.symbols, offset: 0, size: 0 });
            let kernel = self.kernel(&launch.desc)?;
            used.extend(launch.values());
            let (groups, when) = (launch.groups, launch.when);
            self.steps.push(Step::Dispatch { node: node.name.clone(), kernel, bindings, groups, when });
        }
        Ok(used)
    }

    /// The memory of this size that joined launches keep to themselves.
    fn kept_bytes(&mut self, bytes: u64) -> Result<u32> {
        if let Some(&buffer) = self.kept_bytes.get(&bytes) {
            return Ok(buffer);
        }
        let buffer = self.buffers.add("parts", bytes, Content::Activation)?;
        self.kept_bytes.insert(bytes, buffer);
        Ok(buffer)
    }

    /// Where a joined launch finds a value. A later node's output is written here already.
    fn joined_value(&mut self, value: ValueId) -> Result<Slice> {
        let weight = matches!(self.graph.value(value).origin, Origin::Weight);
        if self.homes[value.0 as usize] == Home::None && !weight {
            self.house(value)?;
        }
        self.input(value, 0, 0)
    }
}

struct Finder<'a> {
    graph: &'a Graph,
    info: &'a DeviceInfo,
    users: Vec<Vec<NodeId>>,
    /// Results and states after the run.
    kept: HashSet<ValueId>,
}

/// A normalisation of the residual stream.
#[derive(Clone, Copy)]
struct Stream {
    norm: Norm,
    weight: ValueId,
    /// What is normalised.
    sum: ValueId,
    /// What comes of it.
    y: ValueId,
}

impl<'a> Finder<'a> {
    fn new(graph: &'a Graph, info: &'a DeviceInfo) -> Finder<'a> {
        let results = graph.outputs().iter().map(|output| output.value);
        let kept = results.chain(graph.states().iter().map(|state| state.output)).collect();
        Finder { graph, info, users: graph.users(), kept }
    }

    /// Joins a normalisation with the products that take its result, and the product whose result it adds.
    fn normalised(&self, at: usize, joins: &mut Joins) {
        let node = &self.graph.nodes()[at];
        let Some(stream) = self.stream(node) else { return };
        let Some(Taken { users, last, launch: taken }) = self.taken(&stream) else { return };
        let added = match node.op {
            Op::AddRmsNorm(_) if !joins.sums.contains(&at) => match self.added(node, stream.sum) {
                Some(added) => Some(added),
                None => return,
            },
            _ => None,
        };
        joins.replaced.extend(users.iter().map(|user| user.0 as usize).chain([at]).chain(last));
        joins.add(users[0].0 as usize, When::OneRow, taken.0, taken.1);
        if let Some((product, kernel, values)) = added {
            joins.replaced.insert(product);
            joins.add(at, When::OneRow, kernel, values);
        }
    }

    /// The launch of the products that take a normalised row, if all that take it are such.
    fn taken(&self, stream: &Stream) -> Option<Taken<'_>> {
        let (last, y) = self.last_row(stream.y);
        let users = self.users[y.0 as usize].as_slice();
        if users.is_empty() || users.len() > MOST || [y, stream.y].iter().any(|v| self.kept.contains(v)) {
            return None;
        }
        let launch = self.products(&Stream { y, ..*stream }, users)?;
        Some(Taken { users, last, launch })
    }

    /// The node that alone takes the last of these rows, and that row: of one row it is the row itself.
    fn last_row(&self, y: ValueId) -> (Option<usize>, ValueId) {
        match self.users[y.0 as usize][..] {
            [user] if matches!(self.graph.node(user).op, Op::LastRow(_)) => {
                (Some(user.0 as usize), self.graph.node(user).outputs[0])
            }
            _ => (None, y),
        }
    }

    fn stream(&self, node: &Node) -> Option<Stream> {
        let (eps, offset, weight, sum, y) = match &node.op {
            Op::RmsNorm(op) if op.group.is_none() => {
                (op.eps, op.offset, *node.inputs.get(1)?, node.inputs[0], node.outputs[0])
            }
            Op::AddRmsNorm(op) => (op.eps, op.offset, *node.inputs.get(2)?, node.outputs[0], node.outputs[1]),
            _ => return None,
        };
        let norm = Norm { eps, offset, dtype: self.graph.value(weight).ty.dtype };
        self.one_row(sum).then_some(Stream { norm, weight, sum, y })
    }

    /// Whether a value has as many rows as the run.
    fn one_row(&self, value: ValueId) -> bool {
        self.graph.value(value).ty.shape.first() == Some(&Dim::symbol(Symbol::N))
    }

    fn projection(&self, node: NodeId) -> Option<(&'a Node, Projection)> {
        let node = self.graph.node(node);
        let out = self.graph.value(*node.outputs.first()?).ty.dtype;
        Some((node, Projection::of(&node.op, &self.graph.input_types(node), out)?))
    }

    /// The launch of all products that take the normalised rows.
    fn products(&self, stream: &Stream, users: &[NodeId]) -> Option<((KernelDesc, Grid), Vec<ValueId>)> {
        let found: Vec<_> = users.iter().map(|&user| self.projection(user)).collect::<Option<_>>()?;
        let only_x = |(node, _): &(&Node, Projection)| {
            node.inputs[0] == stream.y && node.inputs.iter().filter(|&&v| v == stream.y).count() == 1
        };
        if !found.iter().all(only_x) {
            return None;
        }
        let all: Vec<&Product> = found.iter().map(|(_, projection)| &projection.product).collect();
        let product = Product::joined(&all)?.of_normalised(stream.norm);
        let mut values = vec![stream.sum, stream.weight];
        for (node, projection) in &found {
            values.extend(projection.weights.iter().map(|&k| node.inputs[k]));
        }
        values.extend(found.iter().filter_map(|(node, projection)| Some(node.inputs[projection.bias?])));
        values.extend(found.iter().map(|(node, _)| node.outputs[0]));
        Some((product.kernel(self.info)?, values))
    }

    /// The node whose product a node adds to the residual stream, and the launch that does both.
    fn added(&self, node: &Node, sum: ValueId) -> Option<(usize, (KernelDesc, Grid), Vec<ValueId>)> {
        let [a, b] = [node.inputs[0], node.inputs[1]];
        [(b, a), (a, b)].into_iter().find_map(|(term, residual)| {
            let Origin::Node { node: from, .. } = self.graph.value(term).origin else { return None };
            let alone = self.users[term.0 as usize].len() == 1 && a != b && !self.kept.contains(&term);
            let (product, projection) = self.projection(from)?;
            let plain = matches!(product.op, Op::Linear(_) | Op::QuantizedLinear(_));
            let same = projection.product.out() == projection.product.act();
            if !alone || !plain || !same || !self.one_row(term) {
                return None;
            }
            let mut values = vec![product.inputs[0]];
            values.extend(projection.weights.iter().chain(&projection.bias).map(|&k| product.inputs[k]));
            values.extend([residual, sum]);
            Some((from.0 as usize, projection.product.added_to().kernel(self.info)?, values))
        })
    }

    /// Joins attention with the rotations and the appending before it.
    fn attended(&self, at: usize, joins: &mut Joins) {
        if let Some((nodes, kernel, values)) = self.attention(at) {
            joins.replaced.extend(nodes);
            joins.replaced.insert(at);
            joins.add(at, When::OneRow, kernel, values);
        }
    }

    fn attention(&self, at: usize) -> Option<Attended> {
        let node = &self.graph.nodes()[at];
        let Op::Attention(op) = &node.op else { return None };
        let [q, keys, values] = node.inputs[..] else { return None };
        if self.graph.value(q).ty.dtype != DType::F16 || !self.one_row(q) {
            return None;
        }
        let Rotated { nodes, values: [q, k, v, angles] } =
            self.rotated_and_appended(op, [q, keys, values])?;
        let bound = vec![q, k, v, angles, keys, values, node.outputs[0]];
        Some((nodes, attention::kernel(op, true, self.info)?, bound))
    }

    /// What an attention's queries and caches are made of by rotations and appending that join it.
    fn rotated_and_appended(&self, op: &Attention, [q, keys, values]: [ValueId; 3]) -> Option<Rotated> {
        let (rope_q, q, angles) = self.rotated(q, op.head_dim)?;
        let (append_k, k) = self.appended(keys)?;
        let (append_v, v) = self.appended(values)?;
        let (rope_k, k, others) = self.rotated(k, op.head_dim)?;
        let nodes = [rope_q, rope_k, append_k, append_v];
        (others == angles).then_some(Rotated { nodes, values: [q, k, v, angles] })
    }

    /// The node of a rotation of whole heads that nothing else uses, what it rotates and by which angles.
    fn rotated(&self, value: ValueId, head_dim: u32) -> Option<(usize, ValueId, ValueId)> {
        let (from, node) = self.maker(value)?;
        let Op::Rope(rope) = &node.op else { return None };
        let whole = rope.head_dim == head_dim && rope.rotary_dim == head_dim && !rope.interleaved;
        (whole && !self.kept.contains(&value)).then_some((from, node.inputs[0], node.inputs[1]))
    }

    /// The node that extends a state in place by rows, and the rows.
    fn appended(&self, cache: ValueId) -> Option<(usize, ValueId)> {
        let (from, node) = self.maker(cache)?;
        let Op::Append(_) = &node.op else { return None };
        let Origin::State(state) = self.graph.value(node.inputs[0]).origin else { return None };
        let extended = self.graph.states().get(state as usize)?.output == cache;
        let rows = extended && self.graph.value(cache).ty.shape.first() == Some(&cached_and_new());
        rows.then_some((from, node.inputs[1]))
    }

    /// The node that makes a value which one other node uses.
    fn maker(&self, value: ValueId) -> Option<(usize, &'a Node)> {
        let Origin::Node { node, .. } = self.graph.value(value).origin else { return None };
        (self.users[value.0 as usize].len() == 1).then(|| (node.0 as usize, self.graph.node(node)))
    }
}

/// The products that take a normalised row.
struct Taken<'a> {
    users: &'a [NodeId],
    /// The node between them that takes the last row.
    last: Option<usize>,
    launch: ((KernelDesc, Grid), Vec<ValueId>),
}

/// The rotations and appending in front of an attention.
struct Rotated {
    nodes: [usize; 4],
    /// Queries, keys and values as they come, and the angles.
    values: [ValueId; 4],
}

/// The nodes in front of an attention that join it, the kernel, and the values that it binds.
type Attended = ([usize; 4], (KernelDesc, Grid), Vec<ValueId>);

/// `n + p`.
fn cached_and_new() -> Dim {
    let rows = Dim::symbol(Symbol::N);
    rows.checked_add(&Dim::symbol(Symbol::P)).unwrap_or(rows)
}
