//! Greedy generation: a language model's graph with the choice of the next token behind its logits.

use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Graph, Node, NodeId, Origin, Output, State, TensorType, Value, ValueId};
use crate::op::{Argmax, Op};
use crate::verify;

/// Name of the node that chooses the next token, and of the output that holds it.
pub const NEXT_TOKEN: &str = "next_token";
/// Name of the state that holds the token chosen at each position, 2³²−1 where none was.
pub const GENERATED: &str = "generated";
/// Name of the logits of a language model.
const LOGITS: &str = "logits";

impl Graph {
    /// The graph of a language model with an [`Argmax`] of its logits: the node [`NEXT_TOKEN`], whose choices the state
    /// [`GENERATED`] keeps. `None` unless the graph takes ids alone, `u32[n]`, remembers in states, and gives `logits`
    /// in f32, a row for each token or one in all; and if it has values of these names.
    pub fn greedy(&self) -> Result<Option<Graph>> {
        if self.inputs().count() == 1 { self.choose_next() } else { Ok(None) }
    }

    /// As [`Graph::greedy`] for a model that sees: of [`Graph::image_reader`], which takes the ids, the rows of an image, and which
    /// tokens these replace. `None` if the model sees no images.
    ///
    /// # Errors
    /// As [`Graph::image_reader`].
    pub fn greedy_reader(&self) -> Result<Option<Graph>> {
        let Some(reader) = self.image_reader()? else { return Ok(None) };
        if reader.inputs().count() == 3 { reader.choose_next() } else { Ok(None) }
    }

    /// The graph with the choice, if it takes ids, and nothing else but rows that replace those of tokens.
    fn choose_next(&self) -> Result<Option<Graph>> {
        // Whatever does not fit is no error: the caller chooses tokens itself then.
        let n = Dim::symbol(Symbol::N);
        let merges = self.nodes().iter().filter(|node| matches!(node.op, Op::MergeRows(_)));
        let merged: Vec<ValueId> = merges.flat_map(|node| node.inputs[1..].to_vec()).collect();
        let own = self.inputs().filter(|(id, _)| !merged.contains(id));
        let own: Vec<&TensorType> = own.map(|(_, value)| &value.ty).collect();
        let takes_ids = own == [&TensorType::new(DType::U32, [n.clone()])] && !self.states().is_empty();
        let logits = self.outputs().iter().find(|output| output.name == LOGITS).map(|output| output.value);
        let fits = |&id: &ValueId| {
            let ty = &self.value(id).ty;
            let rows = ty.shape.first().is_some_and(|rows| *rows == n || rows.as_const() == Some(1));
            ty.dtype == DType::F32 && ty.shape.len() == 2 && rows
        };
        let after = format!("{GENERATED}.after");
        let taken = [NEXT_TOKEN, GENERATED, &after].iter().any(|name| self.find_value(name).is_some());
        match logits.filter(fits).filter(|_| takes_ids && !taken && self.find_node(NEXT_TOKEN).is_none()) {
            Some(logits) => self.with_choice(logits, after).map(Some),
            None => Ok(None),
        }
    }

    /// The graph with the state and the node; `after` names the state's value after the run.
    fn with_choice(&self, logits: ValueId, after: String) -> Result<Graph> {
        let mut graph = self.clone();
        let (p, n) = (Dim::symbol(Symbol::P), Dim::symbol(Symbol::N));
        // The sum does not overflow; the default only avoids a panic.
        let all = p.checked_add(&n).unwrap_or_else(|| p.clone());
        let rows = self.value(logits).ty.shape[..1].to_vec();
        let first = self.values.len() as u32;
        let [before, grown, next] = [first, first + 1, first + 2].map(ValueId);
        let node = NodeId(self.nodes.len() as u32);
        let value = |name: &str, shape: Vec<Dim>, origin| Value {
            name: name.into(),
            ty: TensorType { dtype: DType::U32, shape },
            origin,
        };
        // The new state stands behind all nodes, which the order of values allows.
        graph.values.push(value(GENERATED, vec![p], Origin::State(self.states.len() as u32)));
        graph.values.push(value(&after, vec![all], Origin::Node { node, output: 0 }));
        graph.values.push(value(NEXT_TOKEN, rows, Origin::Node { node, output: 1 }));
        let op = Argmax {}.into();
        let (inputs, outputs) = (vec![before, logits], vec![grown, next]);
        graph.nodes.push(Node { name: NEXT_TOKEN.into(), op, inputs, outputs });
        graph.states.push(State { name: GENERATED.into(), input: before, output: grown });
        graph.outputs.push(Output { name: NEXT_TOKEN.into(), value: next });
        // The graph is changed without a builder, so that it is checked here.
        verify::check(&graph)?;
        Ok(graph)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "graph g
input ids: u32[n]
weight table: f32[9,4]
weight head: f32[9,4]
state k: f32[p,4] -> keys
x: f32[n,4] = embedding(ids, table) {\"dtype\":\"f32\"}
keys: f32[n+p,4] = append(k, x)
logits: f32[n,9] = linear(x, head)
output logits = logits
";

    #[test]
    fn a_language_model_chooses_its_next_token() {
        let graph = Graph::parse(TEXT).unwrap();
        let greedy = graph.greedy().unwrap().unwrap();
        let added = "state generated: u32[p] -> generated.after
generated.after: u32[n+p], next_token: u32[n] = argmax(generated, logits) as next_token
output logits = logits
output next_token = next_token
";
        assert_eq!(greedy.to_text(), TEXT.replace("output logits = logits\n", added));
        assert_eq!(Graph::parse(&greedy.to_text()).unwrap(), greedy);
        assert_eq!(greedy.greedy().unwrap(), None, "it chooses already");
    }

    #[test]
    fn other_graphs_stay() {
        for (from, to) in [
            ("output logits", "output hidden"),
            ("input ids: u32[n]", "input ids: u32[n]\ninput more: f32[n]"),
            ("logits: f32[n,9] = linear(x, head)", "logits: f32[n,9] = linear(x, head) as generated"),
        ] {
            let text = TEXT.replace(from, to);
            let greedy = Graph::parse(&text).unwrap().greedy().unwrap();
            assert_eq!(greedy.is_some(), to.ends_with("generated"), "{to}: a node may have any name");
        }
        let stateless =
            TEXT.replace("state k: f32[p,4] -> keys\n", "").replace("append(k, x)", "append(x, x)");
        let stateless = stateless.replace("keys: f32[n+p,4]", "keys: f32[2*n,4]");
        assert_eq!(Graph::parse(&stateless).unwrap().greedy().unwrap(), None);
    }
}
