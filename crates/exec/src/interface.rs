//! What a language model's graph looks like from outside: the input for token ids, the vocabulary, the logits.

use std::collections::HashMap;
use tapml_graph::{DType, Dim, Error, Graph, Op, Origin, Result, Symbol, Symbols, Tensor, ValueId};

/// Name of the output that a language model's graph must have.
pub const LOGITS: &str = "logits";

/// The parts of a language model's graph that a step needs.
#[derive(Clone, Debug)]
pub struct Interface {
    ids: String,
    vocab: Option<u64>,
    last_only: bool,
}

impl Interface {
    /// Fails unless the graph has one input, `u32[n]`, and an output `logits` of `[n, vocab]` or `[1, vocab]`.
    pub fn of(graph: &Graph) -> Result<Interface> {
        let n = Dim::symbol(Symbol::N);
        let inputs: Vec<_> = graph.inputs().collect();
        let [(id, ids)] = inputs.as_slice() else {
            let names: Vec<&str> = inputs.iter().map(|(_, v)| v.name.as_str()).collect();
            return Err(Error::unsupported(format!("expected one input (token ids), found {names:?}"))
                .context(format!("graph `{}`", graph.name())));
        };
        if ids.ty.dtype != DType::U32 || ids.ty.shape != [n.clone()] {
            return Err(Error::unsupported(format!(
                "input `{}`: expected u32[n], found {}",
                ids.name, ids.ty
            )));
        }
        let output = graph.outputs().iter().find(|o| o.name == LOGITS);
        let output = output.ok_or_else(|| Error::unsupported("the graph has no output `logits`"))?;
        let logits = &graph.value(output.value).ty;
        let last_only = match logits.shape.as_slice() {
            [rows, _] if *rows == n => false,
            [rows, _] if rows.as_const() == Some(1) => true,
            _ => {
                return Err(Error::unsupported(format!(
                    "`logits` must be [n, vocab] or [1, vocab], found {logits}"
                )));
            }
        };
        Ok(Interface { ids: ids.name.clone(), vocab: table_rows(graph, *id), last_only })
    }

    /// Whether logits are computed for the last position of a step only.
    pub fn last_only(&self) -> bool {
        self.last_only
    }

    /// Rows of the embedding table that the ids index, if an `embedding` node reads them.
    pub fn vocab(&self) -> Option<u64> {
        self.vocab
    }

    /// Fails on the first id outside the vocabulary, and if there are no ids.
    pub fn check(&self, ids: &[u32]) -> Result<()> {
        if ids.is_empty() {
            return Err(Error::invalid("no token ids given"));
        }
        let vocab = self.vocab.unwrap_or(u64::from(u32::MAX) + 1);
        match ids.iter().position(|&id| u64::from(id) >= vocab) {
            None => Ok(()),
            Some(at) => Err(Error::invalid(format!(
                "token id {} at position {at} is outside the vocabulary",
                ids[at]
            ))
            .with_hint(format!("ids of this model are 0 to {}", vocab.saturating_sub(1)))),
        }
    }

    /// The inputs of one step, by name.
    pub fn inputs(&self, ids: &[u32]) -> Result<HashMap<String, Tensor>> {
        Ok(HashMap::from([(self.ids.clone(), Tensor::from_u32(vec![ids.len()], ids.to_vec())?)]))
    }

    /// The symbols of a step with these many new tokens after `position` old ones.
    pub fn symbols(&self, new: usize, position: usize) -> Symbols {
        Symbols::np(new as u64, position as u64)
    }
}

fn table_rows(graph: &Graph, ids: ValueId) -> Option<u64> {
    let tables =
        graph.nodes().iter().filter(|n| matches!(n.op, Op::Embedding(_)) && n.inputs.first() == Some(&ids));
    let tables = tables.filter_map(|n| n.inputs.get(1)).map(|&t| graph.value(t));
    tables.filter(|t| t.origin == Origin::Weight).filter_map(|t| t.ty.shape.first()?.as_const()).min()
}
