//! The operators of others of a reproducer, with the names that its files use: as an ONNX model, as lines for people, and as what
//! the package of agents is told to write a script of.

use crate::body::ForeignBody;
use crate::report::attributes;
use crate::specimen::Specimen;
use serde_json::{Value, json};
use std::collections::HashMap;
use tapml_graph::op::Foreign;
use tapml_graph::{Error, Op, Result, Tensor};
use tapml_import::onnx::{NewModel, NewNode};
use tapml_migrate::tensor_type;

/// Operators with names for all values.
pub struct Nodes<'a> {
    /// The smallest call.
    specimen: &'a Specimen,
    /// Its operators.
    body: ForeignBody,
    /// Names of the inputs: their order is that of the names.
    inputs: Vec<String>,
    /// Names in the files of the values of the body.
    names: HashMap<String, String>,
    /// Which of the outputs comes first.
    first: usize,
}

/// An input of the nodes.
pub struct NodeInput<'a> {
    pub name: &'a str,
    pub tensor: &'a Tensor,
    pub is_constant: bool,
}

impl<'a> Nodes<'a> {
    /// Those of a call; `first` is the output that comes first.
    pub fn new(specimen: &'a Specimen, first: usize) -> Result<Nodes<'a>> {
        let none = || Error::bug(format!("`{}` is no operator of others", specimen.call.op.name()));
        let body = specimen.body().ok_or_else(none)?;
        // Numbers of one width, so that sorted file names have the order of the inputs.
        let width = body.inputs.len().saturating_sub(1).to_string().len();
        let inputs: Vec<String> = (0..body.inputs.len()).map(|i| format!("x{i:0width$}")).collect();
        let made = body.parts.iter().flat_map(|part| &part.outputs).cloned();
        let names = made.zip(0..).map(|(name, i)| (name, format!("y{i}")));
        let names = body.inputs.iter().cloned().zip(inputs.iter().cloned()).chain(names).collect();
        Ok(Nodes { specimen, body, inputs, names, first })
    }

    /// The operators.
    pub fn ops(&self) -> impl Iterator<Item = &Foreign> {
        self.body.parts.iter().map(|part| &part.op)
    }

    /// Their kinds between quotation marks, for titles.
    pub fn title(&self, quote: &str) -> String {
        let kinds: Vec<String> = self.ops().map(|op| format!("{quote}{}{quote}", op.kind())).collect();
        match kinds.len() {
            1 => kinds.concat(),
            _ => format!("a model of {}", kinds.join(" + ")),
        }
    }

    /// Whether all are PyTorch's.
    pub fn are_aten(&self) -> bool {
        self.ops().all(|op| op.domain() == "aten")
    }

    pub fn inputs(&self) -> impl Iterator<Item = NodeInput<'_>> {
        let tensors = self.specimen.call.inputs.iter().zip(&self.specimen.is_weight);
        self.inputs.iter().zip(tensors).map(|(name, (tensor, constant))| NodeInput {
            name,
            tensor,
            is_constant: *constant,
        })
    }

    /// Names of the outputs, the first one first, each with its place among the call's own.
    fn outputs(&self) -> Vec<(String, usize)> {
        let names = self.body.outputs.iter().map(|name| self.names.get(name).cloned().unwrap_or_default());
        let mut outputs: Vec<(String, usize)> = names.zip(0..).collect();
        let last = outputs.len().saturating_sub(1);
        // A script compares the first result, so the wrong one goes there.
        outputs.swap(0, self.first.min(last));
        outputs
    }

    /// Names of the inputs and outputs of each operator by place; those that are absent have none.
    fn placed_names(&self) -> Vec<(Vec<String>, Vec<String>)> {
        let name = |own: &String| self.names.get(own).cloned().unwrap_or_default();
        let one = |part: &crate::body::BodyPart| {
            let inputs = part.op.place_inputs(part.inputs.iter().map(name)).into_iter();
            let mut made = part.outputs.iter().map(name);
            let asked = part.op.outputs().iter().map(|place| place.is_asked());
            let outputs =
                asked.map(|asked| if asked { made.next().unwrap_or_default() } else { String::new() });
            (inputs.map(Option::unwrap_or_default).collect(), outputs.collect())
        };
        self.body.parts.iter().map(one).collect()
    }

    /// The bytes of an ONNX model.
    ///
    /// # Errors
    /// An operator is none that an ONNX file holds.
    pub fn model(&self) -> Result<Vec<u8>> {
        let types = &self.specimen.call.output_types;
        let output = |(name, at): (String, usize)| {
            let ty = types.get(at).cloned().ok_or_else(|| Error::bug("an output without a type"))?;
            Ok((name, ty))
        };
        let names: Vec<String> = (0..self.body.parts.len()).map(|at| format!("n{at}")).collect();
        let nodes = self.placed_names().into_iter().zip(self.ops()).zip(&names);
        let nodes = nodes.map(|(((inputs, outputs), op), name)| NewNode { name, op, inputs, outputs });
        let given = |constant: bool| self.inputs().filter(move |input| input.is_constant == constant);
        let new = NewModel {
            nodes: nodes.collect(),
            inputs: given(false).map(|input| (input.name.into(), tensor_type(input.tensor))).collect(),
            constants: given(true).map(|input| (input.name.into(), input.tensor.clone())).collect(),
            outputs: self.outputs().into_iter().map(output).collect::<Result<_>>()?,
        };
        new.encode()
    }

    /// What the package of agents is told: names of the inputs and of the constants among them, the operators, the names of the
    /// outputs, and whether the runtime sees the nodes as a model of several.
    pub fn json(&self) -> Value {
        let constants: Vec<&str> =
            self.inputs().filter(|input| input.is_constant).map(|input| input.name).collect();
        let outputs: Vec<String> = self.outputs().into_iter().map(|(name, _)| name).collect();
        let placed = self.placed_names().into_iter().zip(self.ops());
        let nodes = placed.map(|((inputs, outputs), op)| {
            let attributes = attributes(&Op::Foreign(op.clone()));
            json!({"op": op.kind(), "inputs": inputs, "outputs": outputs, "attributes": attributes})
        });
        json!({
            "inputs": self.inputs, "constants": constants, "nodes": nodes.collect::<Vec<_>>(), "outputs": outputs,
            "graph": matches!(self.specimen.call.op, Op::Fused(_)),
        })
    }

    /// A line for each operator.
    pub fn lines(&self) -> String {
        let place = |name: &String| if name.is_empty() { "_".to_string() } else { name.clone() };
        let list = |names: &[String]| names.iter().map(place).collect::<Vec<_>>().join(", ");
        let line = |((inputs, outputs), op): ((Vec<String>, Vec<String>), &Foreign)| {
            let text = Op::Foreign(op.clone()).attributes_text();
            let attributes = if op.attributes().is_empty() { String::new() } else { format!(" {text}") };
            format!("{} = {}({}){attributes}\n", list(&outputs), op.kind(), list(&inputs))
        };
        self.placed_names().into_iter().zip(self.ops()).map(line).collect()
    }
}
