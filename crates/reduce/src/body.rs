//! The operators of others within a call, with names for the values between them: a single one, or the nodes of a fused one.
//!
//! Names are unique within a body. Those of a single operator are made up, those of a fused one come from its graph.

use serde_json::{Map, Value};
use std::collections::HashSet;
use tapml_exec::Call;
use tapml_graph::op::{Foreign, Fused};
use tapml_graph::{Builder, Error, Graph, Op, Result, TensorType, ValueId};

/// Operators of others, what they are given and what they give.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignBody {
    /// Names of what the call is given, in its order.
    pub inputs: Vec<String>,
    /// The operators in the order in which they run.
    pub parts: Vec<BodyPart>,
    /// Names of what the call gives.
    pub outputs: Vec<String>,
}

/// One operator.
#[derive(Clone, Debug, PartialEq)]
pub struct BodyPart {
    /// The operator.
    pub op: Foreign,
    /// Names of the inputs that are there.
    pub inputs: Vec<String>,
    /// Names of the outputs that are asked for.
    pub outputs: Vec<String>,
}

impl ForeignBody {
    /// The operators of a call; `None` if one is TapML's own.
    pub fn from_call(call: &Call) -> Option<ForeignBody> {
        match &call.op {
            Op::Foreign(op) => {
                let names = |letter: &str, count: usize| {
                    (0..count).map(|at| format!("{letter}{at}")).collect::<Vec<String>>()
                };
                let inputs = names("in", call.inputs.len());
                let outputs = names("out", op.outputs().iter().filter(|place| place.is_asked()).count());
                let parts =
                    vec![BodyPart { op: op.clone(), inputs: inputs.clone(), outputs: outputs.clone() }];
                Some(ForeignBody { inputs, parts, outputs })
            }
            Op::Fused(fused) => ForeignBody::of_graph(fused.body()),
            _ => None,
        }
    }

    /// The nodes of a fused operator; `None` if one of them is TapML's own.
    fn of_graph(graph: &Graph) -> Option<ForeignBody> {
        let name = |id: ValueId| graph.value(id).name.clone();
        let names = |ids: &[ValueId]| ids.iter().map(|&id| name(id)).collect::<Vec<String>>();
        let mut parts = Vec::new();
        for node in graph.nodes() {
            let Op::Foreign(op) = &node.op else { return None };
            parts.push(BodyPart {
                op: op.clone(),
                inputs: names(&node.inputs),
                outputs: names(&node.outputs),
            });
        }
        Some(ForeignBody {
            inputs: graph.inputs().map(|(id, _)| name(id)).collect(),
            parts,
            outputs: graph.outputs().iter().map(|output| name(output.value)).collect(),
        })
    }

    /// The operator that `old` becomes with these nodes, on inputs of these types.
    ///
    /// # Errors
    /// What a node declares does not fit, or a value is used that nothing makes.
    pub fn op(&self, old: &Op, inputs: &[TensorType]) -> Result<Op> {
        match (old, &self.parts[..]) {
            (Op::Fused(fused), _) => self.replace_body(fused, inputs).map(Op::Fused),
            // A single operator needs no graph.
            (Op::Foreign(_), [part]) => Ok(Op::Foreign(part.op.clone())),
            _ => Err(Error::bug("a call of one operator of others")),
        }
    }

    /// Builds the graph anew, in the order of the parts.
    fn replace_body(&self, fused: &Fused, inputs: &[TensorType]) -> Result<Fused> {
        let mut builder = Builder::new(fused.body().name());
        let mut known: Vec<(&str, ValueId)> = Vec::new();
        for (name, ty) in self.inputs.iter().zip(inputs) {
            known.push((name, builder.input(name, ty.clone())?));
        }
        // `known` is an argument because it grows between the calls.
        let find = |known: &[(&str, ValueId)], name: &str| {
            let found = known.iter().find(|(own, _)| *own == name);
            found.map(|(_, id)| *id).ok_or_else(|| Error::bug(format!("nothing makes `{name}`")))
        };
        for part in &self.parts {
            let taken: Vec<ValueId> =
                part.inputs.iter().map(|name| find(&known, name)).collect::<Result<_>>()?;
            // A part does not keep the name of its node.
            let name = part.outputs.first().cloned().unwrap_or_default();
            let made = builder.node_multi(name, Op::Foreign(part.op.clone()), &taken, &part.outputs)?;
            known.extend(part.outputs.iter().map(String::as_str).zip(made));
        }
        for (at, name) in self.outputs.iter().enumerate() {
            builder.output(format!("out{at}"), find(&known, name)?);
        }
        fused.with_body(builder.finish()?)
    }

    /// Where the attributes of a part stand in [`ForeignBody::attributes`] (RFC 6901).
    pub fn pointer(&self, part: usize) -> String {
        if self.parts.len() == 1 { String::new() } else { format!("/{part}") }
    }

    /// The attributes of a single operator, or of each under its number.
    pub fn attributes(&self) -> Value {
        match &self.parts[..] {
            [part] => Value::Object(part.op.attributes().clone()),
            parts => {
                let own = |(at, part): (usize, &BodyPart)| {
                    (at.to_string(), Value::Object(part.op.attributes().clone()))
                };
                Value::Object(parts.iter().enumerate().map(own).collect())
            }
        }
    }

    /// Gives the operators other attributes, in the form of [`ForeignBody::attributes`].
    ///
    /// # Errors
    ///
    /// Attributes of another form, or that an operator does not take.
    pub fn set_attributes(&mut self, attributes: &Value) -> Result<()> {
        for at in 0..self.parts.len() {
            let own = attributes.pointer(&self.pointer(at)).and_then(Value::as_object);
            let own = own.cloned().ok_or_else(|| Error::bug("attributes are an object"))?;
            self.parts[at].set_attributes(own)?;
        }
        Ok(())
    }

    /// Leaves out operators and inputs that nothing uses.
    pub fn drop_unused(&mut self) {
        let mut used: HashSet<String> = self.outputs.iter().cloned().collect();
        let mut kept: Vec<BodyPart> = Vec::new();
        // From the last on: a part is used if a later one takes its result.
        for part in self.parts.drain(..).rev() {
            if part.outputs.iter().any(|name| used.contains(name)) {
                used.extend(part.inputs.iter().cloned());
                kept.push(part);
            }
        }
        kept.reverse();
        self.parts = kept;
        self.inputs.retain(|name| used.contains(name));
    }

    /// Leaves out an operator of several: whoever uses its result takes the input at this place instead. `None` if there is no
    /// such operator or input, if it has several results, or if an input of the call would be a result.
    pub fn without_part(mut self, part: usize, place: usize) -> Option<ForeignBody> {
        if self.parts.len() < 2 || part >= self.parts.len() {
            return None;
        }
        let gone = self.parts.remove(part);
        let ([result], Some(instead)) = (&gone.outputs[..], gone.inputs.get(place)) else { return None };
        // A result of the call needs a name of its own.
        if self.outputs.contains(result) && (self.inputs.contains(instead) || self.outputs.contains(instead))
        {
            return None;
        }
        let taken = self.parts.iter_mut().flat_map(|part| &mut part.inputs).chain(&mut self.outputs);
        taken.filter(|name| *name == result).for_each(|name| name.clone_from(instead));
        self.drop_unused();
        Some(self)
    }

    /// How a part is called beside the others.
    pub fn title(&self, part: usize) -> Option<String> {
        let several = self.parts.len() > 1;
        self.parts.get(part).filter(|_| several).map(|own| format!("node {part} ({})", own.op.kind()))
    }
}

impl BodyPart {
    /// Gives the operator other attributes.
    pub fn set_attributes(&mut self, attributes: Map<String, Value>) -> Result<()> {
        let (inputs, outputs) = (self.op.inputs().to_vec(), self.op.outputs().to_vec());
        self.op = Foreign::new(self.op.kind(), attributes, inputs, outputs)?;
        Ok(())
    }

    /// Leaves out the input at this place; `None` if there is none. Behind the last one that is given there are no places.
    pub fn without_input(&self, place: usize) -> Option<BodyPart> {
        let mut places = self.op.inputs().to_vec();
        if !std::mem::replace(places.get_mut(place)?, false) {
            return None;
        }
        let at = places[..place].iter().filter(|there| **there).count();
        places.truncate(places.iter().rposition(|there| *there).map_or(0, |last| last + 1));
        let (attributes, outputs) = (self.op.attributes().clone(), self.op.outputs().to_vec());
        let op = Foreign::new(self.op.kind(), attributes, places, outputs).ok()?;
        let mut inputs = self.inputs.clone();
        inputs.remove(at);
        Some(BodyPart { op, inputs, outputs: self.outputs.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::fusion::REGION;
    use tapml_graph::op::DeclaredType;
    use tapml_graph::{DType, Symbols, Tensor};

    /// `relu(x · 2) + b`, of which nothing but the sum is used.
    fn call() -> Call {
        let ty = TensorType::new(DType::F32, [3u64]);
        let op = |kind: &str, inputs: usize, attributes: &str| {
            let (attributes, declared) =
                (serde_json::from_str(attributes).unwrap(), DeclaredType::As(ty.clone()));
            Foreign::new(kind, attributes, vec![true; inputs], vec![declared]).unwrap()
        };
        let mut b = Builder::new("body");
        let x = b.input("in0", ty.clone()).unwrap();
        let bias = b.input("in1", ty.clone()).unwrap();
        let scaled = b.node("v0", Op::Foreign(op("onnx.LeakyRelu@16", 1, r#"{"alpha":0.5}"#)), &[x]).unwrap();
        let sum = b.node("v1", Op::Foreign(op("onnx.Sum@13", 2, "{}")), &[scaled, bias]).unwrap();
        b.output("out0", sum);
        let input = Tensor::from_f32(vec![3], vec![-1.0, 0.5, 2.0]).unwrap();
        Call {
            node: "two".into(),
            op: Op::Fused(Fused::new(&REGION, b.finish().unwrap()).unwrap()),
            symbols: Symbols::default(),
            input_types: vec![ty.clone(), ty.clone()],
            weights: vec![None, Some("bias".into())],
            inputs: vec![input.clone(), input],
            output_types: vec![ty],
        }
    }

    #[test]
    fn nodes_become_the_operator_that_they_are_of() {
        let call = call();
        let body = ForeignBody::from_call(&call).unwrap();
        assert_eq!(body.op(&call.op, &call.input_types).unwrap(), call.op);
        assert_eq!(
            (body.pointer(1).as_str(), body.title(1).unwrap().as_str()),
            ("/1", "node 1 (onnx.Sum@13)")
        );
        let mut changed = body.clone();
        let mut attributes = body.attributes();
        *attributes.pointer_mut("/0/alpha").unwrap() = Value::from(0.25);
        changed.set_attributes(&attributes).unwrap();
        assert_eq!(changed.parts[0].op.attributes()["alpha"], 0.25);
        assert_eq!(changed.parts[1], body.parts[1]);
        let mut fewer = body;
        fewer.parts[1] = fewer.parts[1].without_input(1).unwrap();
        fewer.drop_unused();
        assert_eq!((fewer.inputs.len(), fewer.parts[1].op.inputs()), (1, &[true][..]));
        assert!(fewer.parts[1].without_input(1).is_none());
        assert!(fewer.op(&call.op, &call.input_types[..1]).is_ok());
    }

    #[test]
    fn a_node_goes_with_what_only_it_needs() {
        let call = call();
        let body = ForeignBody::from_call(&call).unwrap();
        // `x + b`: the sum takes what the first node was given.
        let sum = body.clone().without_part(0, 0).unwrap();
        assert_eq!((sum.parts.len(), &sum.inputs[..]), (1, &["in0".to_string(), "in1".to_string()][..]));
        assert_eq!(sum.parts[0].inputs, ["in0", "in1"]);
        assert!(sum.op(&call.op, &call.input_types).is_ok());
        // The first node alone: nothing adds the second input.
        let scaled = body.clone().without_part(1, 0).unwrap();
        assert_eq!(
            (scaled.parts.len(), scaled.inputs.len(), &scaled.outputs),
            (1, 1, &scaled.parts[0].outputs)
        );
        // An input is no result, and one operator is the least.
        assert!(body.clone().without_part(1, 1).is_none());
        assert!(body.without_part(2, 0).is_none() && sum.without_part(0, 0).is_none());
    }
}
