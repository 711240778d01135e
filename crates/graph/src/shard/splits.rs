//! What of a graph is shared out: the nodes between two products of matrices whose columns do not depend on each other.
//!
//! The first product is split by its outputs, the second by its inputs, so that the ranks meet one time behind it
//! (Shoeybi et al. 2019, section 3). Such pairs are found from the second product backwards.

use super::columns::ColumnSet;
use super::rules::{self, PartNeed};
use crate::error::{Context, Error, Result};
use crate::graph::{Graph, Node, NodeId, Origin, ValueId};
use crate::op::Op;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Name of the logits of a language model.
const LOGITS: &str = "logits";

/// What is shared out.
pub struct Splits<'a> {
    pub graph: &'a Graph,
    pub ranks: u32,
    /// The columns that each rank has of a value; all of any other value.
    pub columns: HashMap<ValueId, Vec<ColumnSet>>,
    /// The nodes of which each rank computes a part.
    pub nodes: HashSet<NodeId>,
    /// The products of which each rank computes terms of all sums, with the columns of their input that it has.
    pub sums: HashMap<NodeId, Vec<ColumnSet>>,
    /// Nodes of which each rank computes terms of all sums, because they add up what a product gives them.
    pub tails: HashSet<NodeId>,
    /// The product that gives the logits, with the columns of each rank.
    pub head: Option<(NodeId, Vec<ColumnSet>)>,
    /// Why products are not among [`Splits::sums`], with the nodes that were looked at.
    refusals: Vec<(BTreeSet<NodeId>, Error)>,
    users: Vec<Vec<NodeId>>,
    results: HashSet<ValueId>,
}

/// What lies between two products.
#[derive(Default)]
struct Between {
    columns: HashMap<ValueId, Vec<ColumnSet>>,
    nodes: BTreeSet<NodeId>,
    whole: HashSet<ValueId>,
}

impl<'a> Splits<'a> {
    /// Finds what is shared out among so many ranks.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unsupported`], with the node, if sizes do not divide, if a state or an attention would be whole on
    /// each rank, and if nothing could be shared out.
    pub fn find(graph: &'a Graph, ranks: u32) -> Result<Splits<'a>> {
        let mut splits = Splits {
            graph,
            ranks,
            columns: HashMap::new(),
            nodes: HashSet::new(),
            sums: HashMap::new(),
            tails: HashSet::new(),
            head: None,
            refusals: Vec::new(),
            users: graph.users(),
            results: graph.outputs().iter().map(|output| output.value).collect(),
        };
        for (id, node) in (0..).map(NodeId).zip(graph.nodes()) {
            splits.share_product(id, node).context(|| format!("node `{}`", node.name))?;
        }
        splits.find_head();
        if splits.sums.is_empty() && splits.head.is_none() {
            return Err(Error::unsupported("no two products of matrices follow each other"));
        }
        splits.expect_no_whole_states()?;
        Ok(splits)
    }

    /// Shares out what lies before a product, if its columns do not depend on each other.
    fn share_product(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let Some((blocks, width)) = self.summed_columns(node) else { return Ok(()) };
        let x = node.inputs[0];
        // With one rank everything divides, so that an error tells that columns depend on each other.
        let mut seen = BTreeSet::new();
        let all = ColumnSet::all(width).repeat(width, blocks);
        if let Err(refusal) = self.find_between(id, x, vec![all], &mut seen) {
            self.refusals.push((seen, refusal));
            return Ok(());
        }
        let parts = self.even_parts(width)?;
        let group = self.graph.value(node.inputs[1]).ty.dtype.packing().map_or(1, |p| u64::from(p.group));
        if parts.iter().any(|part| part.units(group).is_none()) {
            let each = width / u64::from(self.ranks);
            return Err(Error::unsupported(format!(
                "a rank would have {each} columns of its packed weight, of which {group} share a scale"
            ))
            .with_hint("take fewer ranks, or quantise with smaller groups"));
        }
        let parts: Vec<ColumnSet> = parts.iter().map(|part| part.repeat(width, blocks)).collect();
        let between = self.find_between(id, x, parts.clone(), &mut seen)?;
        self.columns.extend(between.columns);
        self.nodes.extend(between.nodes);
        self.sums.insert(id, parts);
        self.tails.extend(self.tail(node));
        Ok(())
    }

    /// Of a product that can give terms of sums: the blocks of its input, and the columns of each, which are added up.
    fn summed_columns(&self, node: &Node) -> Option<(u64, u64)> {
        let weight = self.graph.value(*node.inputs.get(1)?);
        let columns = |ty: &crate::TensorType| ty.shape.last()?.as_const();
        let width = columns(&weight.ty).filter(|&width| width > 0)?;
        let product =
            matches!(node.op, Op::Linear(_) | Op::ExpertLinear(_)) && weight.origin == Origin::Weight;
        let all = columns(&self.graph.value(node.inputs[0]).ty)?;
        product.then_some((all / width, width))
    }

    /// Equal parts of so many columns.
    fn even_parts(&self, width: u64) -> Result<Vec<ColumnSet>> {
        let ranks = u64::from(self.ranks);
        if !width.is_multiple_of(ranks) {
            return Err(Error::unsupported(format!("{width} columns do not divide by {ranks} ranks"))
                .with_hint("take a number of ranks that divides the heads and the columns of the feed-forward layers"));
        }
        let each = width / ranks;
        Ok((0..ranks)
            .map(|rank| ColumnSet::from_ranges(std::iter::once(rank * each..(rank + 1) * each)))
            .collect())
    }

    /// What has to be computed in parts so that each rank has these columns of `x`, which the node `user` adds up. The nodes
    /// that were looked at are added to `seen`.
    fn find_between(
        &self,
        user: NodeId,
        x: ValueId,
        parts: Vec<ColumnSet>,
        seen: &mut BTreeSet<NodeId>,
    ) -> Result<Between> {
        let mut between = Between::default();
        let mut open = BTreeSet::new();
        self.demand(&mut between, &mut open, (x, parts))?;
        // Behind the last node nothing more is wanted of a value.
        while let Some(id) = open.pop_last() {
            let node = self.graph.node(id);
            seen.insert(id);
            let named = || format!("node `{}`", node.name);
            let [output] = node.outputs[..] else {
                return Err(Error::unsupported(format!("`{}` gives several values", node.op.name())))
                    .context(named);
            };
            if self.sums.contains_key(&id) || self.tails.contains(&id) {
                return Err(Error::unsupported("the ranks meet here already")).context(named);
            }
            between.nodes.insert(id);
            let own = between.columns.get(&output).cloned().unwrap_or_default();
            let needs = rules::needs(self.graph, node, &own).context(named)?;
            for (&input, need) in node.inputs.iter().zip(needs) {
                match need {
                    PartNeed::Whole => drop(between.whole.insert(input)),
                    PartNeed::Columns(parts) => {
                        self.demand(&mut between, &mut open, (input, parts)).context(named)?;
                    }
                    PartNeed::Rows(_) | PartNeed::WeightColumns(_) => {
                        self.expect_weight(input).context(named)?
                    }
                }
            }
        }
        self.expect_closed(&between, user)?;
        Ok(between)
    }

    /// Notes that parts of a value are needed, and the node that computes it.
    fn demand(
        &self,
        between: &mut Between,
        open: &mut BTreeSet<NodeId>,
        (value, parts): (ValueId, Vec<ColumnSet>),
    ) -> Result<()> {
        match self.graph.value(value).origin {
            Origin::Node { node, .. } => drop(open.insert(node)),
            Origin::State(_) => {}
            Origin::Input | Origin::Weight => {
                return Err(Error::unsupported(format!("`{}` is given whole", self.graph.value(value).name)));
            }
        }
        let known = between.columns.entry(value).or_insert_with(|| vec![ColumnSet::default(); parts.len()]);
        for (known, part) in known.iter_mut().zip(&parts) {
            *known = known.union(part);
        }
        Ok(())
    }

    fn expect_weight(&self, value: ValueId) -> Result<()> {
        let value = self.graph.value(value);
        if value.origin == Origin::Weight {
            return Ok(());
        }
        Err(Error::unsupported(format!("`{}` is no weight, which a rank could have a slice of", value.name)))
    }

    /// Fails if what lies between two products is used elsewhere, or is used whole.
    fn expect_closed(&self, between: &Between, user: NodeId) -> Result<()> {
        let inside = |node: &NodeId| *node == user || between.nodes.contains(node);
        for (&value, parts) in &between.columns {
            let name = &self.graph.value(value).name;
            let used = self.users[value.0 as usize].iter().all(inside);
            if !used || self.results.contains(&value) || between.whole.contains(&value) {
                return Err(Error::unsupported(format!("`{name}` is needed whole elsewhere")));
            }
            if let Origin::State(state) = self.graph.value(value).origin {
                let after = self.graph.states()[state as usize].output;
                if between.columns.get(&after) != Some(parts) {
                    return Err(Error::unsupported(format!(
                        "state `{name}` would change its columns in a run"
                    )));
                }
            }
        }
        Ok(())
    }

    /// The node that adds up the blocks of a product's result, if it is all that uses it.
    pub fn tail(&self, node: &Node) -> Option<NodeId> {
        let output = *node.outputs.first()?;
        let [user] = self.users[output.0 as usize][..] else { return None };
        let tail = self.graph.node(user);
        let adds = matches!(tail.op, Op::Combine(_))
            && tail.inputs[0] == output
            && !tail.inputs[1..].contains(&output);
        (adds && !self.results.contains(&output)).then_some(user)
    }

    /// The product behind the logits, if its outputs divide.
    fn find_head(&mut self) {
        let graph = self.graph;
        let Some(logits) = graph.outputs().iter().find(|output| output.name == LOGITS) else { return };
        let mut value = logits.value;
        while let Origin::Node { node: id, .. } = graph.value(value).origin {
            let node = graph.node(id);
            if rules::is_elementwise(&node.op) {
                value = node.inputs[0];
                continue;
            }
            let weights = node.inputs[1..].iter().all(|&input| graph.value(input).origin == Origin::Weight);
            let free = !self.sums.contains_key(&id) && !self.nodes.contains(&id);
            let columns = graph.value(value).ty.shape.last().and_then(|size| size.as_const());
            if let (Op::Linear(_), true, Some(columns)) = (&node.op, weights && free, columns)
                && let Ok(parts) = self.even_parts(columns)
            {
                self.head = Some((id, parts));
            }
            return;
        }
    }

    /// Fails if a state or an attention would be whole on every rank: ranks would save neither memory nor time.
    fn expect_no_whole_states(&self) -> Result<()> {
        let whole = |id: NodeId, node: &Node| {
            let state = |&input: &ValueId| matches!(self.graph.value(input).origin, Origin::State(_));
            let attends = matches!(node.op, Op::Attention(_) | Op::PagedAttention(_));
            !self.nodes.contains(&id) && (attends || node.inputs.iter().any(state))
        };
        let mut nodes = (0..).map(NodeId).zip(self.graph.nodes());
        let Some((id, node)) = nodes.find(|(id, node)| whole(*id, node)) else { return Ok(()) };
        let why = self.refusals.iter().find(|(seen, _)| seen.contains(&id));
        let why =
            why.map_or("no product follows that adds up its columns".into(), |(_, why)| why.to_string());
        Err(Error::unsupported(format!(
            "node `{}`: `{}` cannot be shared out among ranks: {why}",
            node.name,
            node.op.name()
        )))
    }
}
