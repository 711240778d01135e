//! Graphs within operators of others, such as the body of a `Loop`: one operator carries them as attributes.

use super::Foreign;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A graph within an operator, in the attribute `{"graph":{…}}` that has it.
///
/// What the graph reads of the graph around it are inputs of the operator, behind the operator's own: `outer` says which name
/// within stands for the input at which place. So an operator of a [`Graph`](crate::Graph) reads nothing but its inputs. Names are
/// unique in the graph and in those around it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subgraph {
    /// Names of the inputs that the operator gives it.
    pub inputs: Vec<String>,
    /// Their types, as far as the model says: `f32[2,?]`, `f32` where the number of sizes is not known, or an empty text. None at
    /// all, or one for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// Names that stand for inputs of the operator, by their places.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outer: BTreeMap<String, usize>,
    /// The nodes; each reads only what stands before it.
    pub nodes: Vec<SubgraphNode>,
    /// Names of the outputs.
    pub outputs: Vec<String>,
    /// How often it runs at most, where that is known.
    #[serde(rename = "turns", default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u64>,
}

/// A node of a graph within an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubgraphNode {
    /// Domain, name and version: `onnx.Add@14`.
    pub op: String,
    /// Attributes; see [`Foreign`].
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub attributes: Map<String, Value>,
    /// Names of the inputs by place; an absent one has none.
    pub inputs: Vec<String>,
    /// Names of the outputs by place; one that nobody asks for has none.
    pub outputs: Vec<String>,
}

impl Subgraph {
    /// The graph that an attribute has; `None` if it has none.
    ///
    /// # Errors
    /// If it is not of the form of a graph.
    pub fn from_attribute(attribute: &Value) -> Result<Option<Subgraph>> {
        let Some(graph) = attribute.get("graph") else { return Ok(None) };
        let read = Subgraph::deserialize(graph);
        read.map(Some).map_err(|e| Error::invalid(format!("a graph within an operator: {e}")))
    }

    /// The attribute that has it.
    pub fn to_attribute(&self) -> Value {
        json!({"graph": self})
    }
}

impl Foreign {
    /// How many places of inputs are the operator's own: behind them stand those that graphs within it read.
    pub fn own_inputs(&self) -> usize {
        let outer = |value: &Value| value.get("graph")?.get("outer")?.as_object().cloned();
        let places = self.attributes().values().filter_map(outer).flat_map(|outer| outer.into_iter());
        let places = places.filter_map(|(_, place)| usize::try_from(place.as_u64()?).ok());
        places.min().unwrap_or(usize::MAX).min(self.inputs().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Graph, Op};

    const TEXT: &str = "graph g
input m: i64[]
input x: f32[2]
weight w: f32[2]
y: f32[2] = onnx.Loop@17(m, _, x, w) {\"body\":{\"graph\":{\"inputs\":[\"i\",\"go\",\"a\"],\"nodes\":[{\"inputs\":[\"a\",\"o\"],\"op\":\"onnx.Add@17\",\"outputs\":[\"b\"]}],\"outer\":{\"o\":3},\"outputs\":[\"go\",\"b\"],\"turns\":9}}}
output y = y
";

    #[test]
    fn a_graph_within_an_operator_keeps_its_text() {
        let graph = Graph::parse(TEXT).unwrap();
        assert_eq!(graph.to_text(), TEXT);
        let Op::Foreign(op) = &graph.nodes()[0].op else { panic!("{:?}", graph.nodes()[0].op) };
        assert_eq!(op.own_inputs(), 3);
        let body = Subgraph::from_attribute(&op.attributes()["body"]).unwrap().unwrap();
        assert_eq!(
            (body.max_iterations, body.outer["o"], body.nodes[0].op.as_str()),
            (Some(9), 3, "onnx.Add@17")
        );
        assert_eq!(body.to_attribute(), op.attributes()["body"]);
        assert_eq!(Subgraph::from_attribute(&json!(3)).unwrap(), None);
        let told = Subgraph::from_attribute(&json!({"graph": {"inputs": 3}})).unwrap_err().to_string();
        assert!(told.contains("a graph within an operator"), "{told}");
    }
}
