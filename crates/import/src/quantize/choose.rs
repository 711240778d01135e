//! Which weights of a graph are quantised: operands of matrix products and tables, by what they are for.
//!
//! A weight qualifies by its readers, not by its name. So the choice holds for every architecture.

use super::scheme::Scheme;
use std::collections::HashMap;
use tapml_graph::{Dim, Error, Graph, NodeId, Op, Origin, Packing, Result, Symbols, Value, ValueId};

/// Outputs that a matrix needs to be worth it: a smaller one, such as the gate of a shared expert, decides much and
/// weighs little.
const FEWEST_OUTPUTS: u64 = 8;

/// What a weight is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A matrix of a layer.
    Body,
    /// A table that ids choose rows of.
    Embedding,
    /// The matrix that gives the logits.
    Head,
}

/// A matrix that stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The weight's name.
    pub weight: String,
    /// Why, as part of a sentence.
    pub reason: String,
}

/// What becomes of the weights.
pub struct Choice {
    /// How those are packed that are quantised.
    pub packings: HashMap<String, Packing>,
    /// The other matrices.
    pub kept: Vec<Kept>,
}

/// Chooses by a scheme. Fails if nothing is left to quantise.
pub fn choose(graph: &Graph, scheme: &Scheme) -> Result<Choice> {
    let mut choice = Choice { packings: HashMap::new(), kept: Vec::new() };
    let users = graph.users();
    for (id, weight) in graph.weights() {
        // Norms and biases are vectors; integers and packed weights are left alone.
        if weight.ty.shape.len() < 2 || !weight.ty.dtype.is_float() {
            continue;
        }
        match packing(graph, (id, weight), &users[id.0 as usize], scheme) {
            Ok(packing) => drop(choice.packings.insert(weight.name.clone(), packing)),
            Err(reason) => choice.kept.push(Kept { weight: weight.name.clone(), reason }),
        }
    }
    if choice.packings.is_empty() {
        let stored = graph.weights().any(|(_, weight)| weight.ty.dtype.packing().is_some());
        let text = if stored { "the weights are quantised already" } else { "no weight can be quantised" };
        let first = choice.kept.first().map(|kept| format!(": `{}` {}", kept.weight, kept.reason));
        return Err(Error::invalid(format!("{text}{}", first.unwrap_or_default())));
    }
    Ok(choice)
}

/// How a weight is packed, or why it is not.
/// The error is a reason for people, not a failure.
fn packing(
    graph: &Graph,
    (id, weight): (ValueId, &Value),
    users: &[NodeId],
    scheme: &Scheme,
) -> std::result::Result<Packing, String> {
    let mut classes = Vec::new();
    for &user in users {
        // A small error in a router's logits chooses another expert, whose results differ by far more.
        if routes(graph, user) {
            return Err("chooses experts".into());
        }
        classes.push(class(graph, id, user).ok_or_else(|| {
            let node = graph.node(user);
            format!("is read by `{}` of `{}`", node.op.name(), node.name)
        })?);
    }
    let forms = classes.iter().map(|class| match class {
        Class::Body => scheme.body,
        Class::Embedding => scheme.embedding,
        Class::Head => scheme.head,
    });
    // The most bits of all uses, of which integers err less; a weight that one use keeps is kept.
    let bits = |packing: Packing| (packing.bits(), packing.code.info().middle > 0);
    let form = forms.max_by_key(|form| form.packing().map_or((u32::MAX, true), bits));
    let packing = form.and_then(|form| form.packing()).ok_or("is to be kept")?;
    let outputs = weight.ty.shape.iter().rev().nth(1).and_then(Dim::as_const).unwrap_or(0);
    if outputs < FEWEST_OUTPUTS {
        return Err(format!("has {outputs} outputs only"));
    }
    let fits = weight.ty.sizes(&Symbols::new()).and_then(|sizes| packing.sections(&sizes));
    // Rows are never padded: a kernel would read beyond the weight.
    fits.map(|_| packing)
        .map_err(|_| format!("has rows that are no whole groups of {}: {}", packing.group, weight.ty))
}

/// What the weight is for in this node; `None` if it stays for the node's sake.
fn class(graph: &Graph, weight: ValueId, user: NodeId) -> Option<Class> {
    let node = graph.node(user);
    // Every occurrence must be a weight operand: a matrix that is also an input stays.
    let at = |operands: std::ops::Range<usize>| {
        node.inputs.iter().enumerate().all(|(i, &input)| input != weight || operands.contains(&i))
    };
    match &node.op {
        Op::Embedding(_) if at(1..2) => Some(Class::Embedding),
        Op::Linear(_) if at(1..2) => Some(if gives_logits(graph, user) { Class::Head } else { Class::Body }),
        Op::ExpertLinear(_) if at(1..2) => Some(Class::Body),
        Op::GatedLinear(_) | Op::ExpertGatedLinear(_) if at(1..3) => Some(Class::Body),
        _ => None,
    }
}

/// Whether the node's result chooses experts.
fn routes(graph: &Graph, node: NodeId) -> bool {
    let y = graph.node(node).outputs[0];
    graph.nodes().iter().any(|user| matches!(user.op, Op::Route(_)) && user.inputs.contains(&y))
}

/// Whether a result follows from the node's by operators that treat numbers one by one.
fn gives_logits(graph: &Graph, node: NodeId) -> bool {
    graph.outputs().iter().any(|output| {
        let mut value = output.value;
        loop {
            let Origin::Node { node: from, .. } = graph.value(value).origin else { return false };
            if from == node {
                return true;
            }
            match (&graph.node(from).op, graph.node(from).inputs.first()) {
                (Op::Softcap(_) | Op::Scale(_) | Op::LastRow(_) | Op::Tanh(_), Some(&input)) => value = input,
                _ => return false,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantize::Form;

    const GRAPH: &str = "graph g
input ids: u32[n]
weight table: bf16[40,64]
x: f32[n,64] = embedding(ids, table) {\"dtype\":\"f32\"}
weight norm: bf16[64]
h: f32[n,64] = rms_norm(x, norm) {\"eps\":0.001}
weight router: bf16[8,64]
scores: f32[n,8] = linear(h, router)
experts: u32[n,2], shares: f32[n,2] = route(scores) {\"k\":2,\"scores\":\"softmax\",\"normalize\":true} as route
weight stack: bf16[8,64,64]
e: f32[n,128] = expert_linear(h, stack, experts)
c: f32[n,64] = combine(e, shares) {\"k\":2}
weight odd: bf16[64,40]
weight even: f32[40,64]
a: f32[n,40] = linear(c, even)
b: f32[n,64] = linear(a, odd)
weight one: bf16[1,64]
share: f32[n,1] = linear(b, one)
y: f32[n,64] = mul(b, share)
z: f32[n,40] = linear(y, table)
logits: f32[n,40] = softcap(z) {\"cap\":30.0}
output logits = logits
";

    #[test]
    fn classes_decide_and_reasons_are_given() {
        let graph = Graph::parse(GRAPH).unwrap();
        let choose = |text: &str| choose(&graph, &text.parse().unwrap()).unwrap();
        let choice = choose("q4");
        let form = |name: &str| choice.packings.get(name).copied();
        assert_eq!(form("stack"), Form::Q4.packing());
        assert_eq!(form("even"), Form::Q4.packing());
        assert_eq!(form("table"), Form::Q8.packing());
        let kept: Vec<(&str, &str)> =
            choice.kept.iter().map(|k| (k.weight.as_str(), k.reason.as_str())).collect();
        assert_eq!(kept[0], ("router", "chooses experts"));
        assert_eq!(kept[1], ("odd", "has rows that are no whole groups of 32: bf16[64,40]"));
        assert_eq!(kept[2], ("one", "has 1 outputs only"));
        assert_eq!(kept.len(), 3);
        // A tied table takes the form of more bits of its two uses.
        assert_eq!(choose("q4,embedding=q4").packings["table"].bits(), 8);
        assert_eq!(choose("q4,embedding=q4,head=q4").packings["table"].bits(), 4);
        for text in ["q4,embedding=fp8", "q4,head=fp8", "fp8"] {
            assert_eq!(choose(text).packings["table"], Packing::integers(8, 32, false), "{text}");
        }
        assert_eq!(choose("fp8").packings["even"], Packing::floats(32));
        assert_eq!(choose("mxfp4").packings["even"], Packing::MXFP4);
        assert_eq!(
            choose("mxfp4,embedding=mxfp4,head=q4").packings["table"],
            Packing::integers(4, 32, false)
        );
        assert_eq!(choose("q4,embedding=fp8,head=q4").packings["table"], Packing::floats(32));
        assert!(!choose("q4,head=keep").packings.contains_key("table"));
        assert!(super::choose(&graph, &"keep,embedding=keep,head=keep".parse().unwrap()).is_err());
    }
}
