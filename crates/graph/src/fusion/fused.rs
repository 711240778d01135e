//! Fused operators: several operators as one. Its meaning is the small graph that it stands for, so nothing that knows
//! the plain operators needs to learn it.

use super::rule::Fusion;
use crate::error::{Error, Result};
use crate::graph::{Builder, Graph, Origin, TensorType, ValueId};
use crate::op::{Extreme, Fused, Op};
use crate::pools::Pools;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::HashMap;
use std::sync::Arc;

/// The attributes as they are written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attributes {
    body: Graph,
}

// The names are compared: functions have no reliable equality.
impl PartialEq for Fused {
    fn eq(&self, other: &Fused) -> bool {
        self.name() == other.name() && self.body == other.body
    }
}

impl Serialize for Fused {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        let mut attributes = s.serialize_struct("Fused", 1)?;
        attributes.serialize_field("body", &*self.body)?;
        attributes.end()
    }
}

impl Fused {
    /// The operator of this fusion that stands for `body`. Fails on a body with weights or states, or without nodes, and
    /// on fused operators within it.
    pub fn new(fusion: &'static Fusion, body: Graph) -> Result<Fused> {
        Fused::check_body(fusion.name, &body)?;
        Ok(Fused { name: fusion.name, body: Arc::new(body) })
    }

    /// Fails on a body that no operator of this name can stand for.
    fn check_body(name: &str, body: &Graph) -> Result<()> {
        // Whoever walks a body finds plain operators alone.
        let nested = body.nodes().iter().find(|node| matches!(node.op, Op::Fused(_)));
        let why = if let Some(value) = body.values().iter().find(|v| !is_inner(v.origin)) {
            format!("`{}` is a weight or a state", value.name)
        } else if let Some(node) = nested {
            format!("node `{}` is fused itself", node.name)
        } else if body.nodes().is_empty() || body.outputs().is_empty() {
            "it computes nothing".to_string()
        } else {
            return Ok(());
        };
        Err(Error::invalid(format!("the body of `{name}`: {why}")))
    }

    /// Reads the attributes that [`Op::attributes_text`] writes.
    pub(crate) fn parse(fusion: &'static Fusion, text: &str) -> Result<Fused> {
        let attributes: Attributes = serde_json::from_str(text)
            .map_err(|e| Error::invalid(format!("attributes of `{}`: {e}", fusion.name)))?;
        Fused::new(fusion, attributes.body)
    }

    /// The operator's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The operator of the same fusion that stands for other nodes. Fails as [`Fused::new`] does.
    pub fn with_body(&self, body: Graph) -> Result<Fused> {
        Fused::check_body(self.name, &body)?;
        Ok(Fused { name: self.name, body: Arc::new(body) })
    }

    /// What it stands for.
    pub fn body(&self) -> &Graph {
        &self.body
    }

    /// Types of the outputs. Fails unless the inputs have exactly the types of the body's.
    pub(crate) fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        let expected: Vec<&TensorType> = self.body.inputs().map(|(_, value)| &value.ty).collect();
        // The body was inferred for these types, so that no others fit.
        if !expected.iter().copied().eq(inputs) {
            let list = |types: &mut dyn Iterator<Item = &TensorType>| {
                types.map(ToString::to_string).collect::<Vec<_>>().join(", ")
            };
            let (expected, found) = (list(&mut expected.into_iter()), list(&mut inputs.iter()));
            return Err(Error::invalid(format!("expected inputs {expected}, found {found}")));
        }
        let outputs = self.body.outputs().iter();
        Ok(outputs.map(|output| self.body.value(output.value).ty.clone()).collect())
    }

    /// See [`crate::Operator::row_wise`].
    pub(crate) fn row_wise(&self) -> bool {
        self.body.nodes().iter().all(|node| node.op.row_wise())
    }

    /// See [`crate::Operator::extremes`]: those that every operator inside bears.
    pub(crate) fn extremes(&self) -> &'static [Extreme] {
        let inner = self.body.nodes().iter().map(|node| node.op.extremes());
        inner.min_by_key(|extremes| extremes.len()).unwrap_or(Extreme::ALL)
    }

    /// See [`crate::Operator::pools`]: those of all operators inside, which must be named by one table.
    pub(crate) fn pools(&self) -> Option<Pools> {
        let body = &self.body;
        let inputs: Vec<ValueId> = body.inputs().map(|(id, _)| id).collect();
        let of_input = |value: ValueId| inputs.iter().position(|&input| input == value);
        let of_output = |value: ValueId| body.outputs().iter().position(|output| output.value == value);
        let mut all: Option<Pools> = None;
        for node in body.nodes() {
            let Some(inner) = node.op.pools(&body.input_types(node)) else { continue };
            let taken: Option<Vec<usize>> =
                inner.inputs.iter().map(|&at| of_input(node.inputs[at])).collect();
            let given: Option<Vec<usize>> =
                inner.outputs.iter().map(|&at| of_output(node.outputs[at])).collect();
            let (table, part) = (of_input(node.inputs[inner.table])?, inner.part);
            let all = all.get_or_insert(Pools { inputs: Vec::new(), outputs: Vec::new(), part, table });
            if (all.part, all.table) != (part, table) {
                return None;
            }
            all.inputs.extend(taken?);
            all.outputs.extend(given?);
        }
        if let Some(all) = &mut all {
            all.inputs.sort_unstable();
        }
        all
    }

    /// See [`crate::Operator::with_parts`].
    pub(crate) fn with_parts(&self, parts: u32) -> Fused {
        let narrow = self.pools().and_then(|pools| {
            let body = narrow_body(&self.body, &pools, parts).ok()?;
            self.with_body(body).ok()
        });
        // Without pools there is nothing to change.
        narrow.unwrap_or_else(|| self.clone())
    }
}

/// The body for pools of so many parts.
fn narrow_body(body: &Graph, pools: &Pools, parts: u32) -> Result<Graph> {
    let mut types: Vec<TensorType> = body.inputs().map(|(_, input)| input.ty.clone()).collect();
    pools.narrow_types(&mut types, parts as usize);
    let mut builder = Builder::new(body.name());
    let mut made: HashMap<ValueId, ValueId> = HashMap::new();
    for ((id, input), ty) in body.inputs().zip(types) {
        made.insert(id, builder.input(input.name.clone(), ty)?);
    }
    for node in body.nodes() {
        let inputs: Vec<ValueId> = node.inputs.iter().map(|value| made[value]).collect();
        let names: Vec<String> = node.outputs.iter().map(|&value| body.value(value).name.clone()).collect();
        let outputs = builder.node_multi(node.name.clone(), node.op.with_parts(parts), &inputs, &names)?;
        made.extend(node.outputs.iter().copied().zip(outputs));
    }
    for output in body.outputs() {
        builder.output(output.name.clone(), made[&output.value]);
    }
    builder.finish()
}

/// Whether a value of this origin may stand in a body.
fn is_inner(origin: Origin) -> bool {
    matches!(origin, Origin::Input | Origin::Node { .. })
}
