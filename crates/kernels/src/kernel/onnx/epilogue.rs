//! What becomes of a result before it is stored: the nodes of a fused operator's body behind the first, as one function of
//! WGSL. A kernel calls it wherever it stores a result, and is the same with and without.
//!
//! Values within the function are f32, so that nothing is rounded between the nodes. Operands are read at the
//! element, at the channel, or at place 0; an operand of any other form is refused.

use super::formulas::formula_of_floats;
use super::{OnnxNode, broadcast_strides, count, map, normalise, pairs, plan_with, sizes_of, strides};
use crate::kernel::Request;
use crate::kernel::body::FusedBody;
use crate::kernel::source::{KernelSource, LaunchBuilder, wrong_op};
use crate::plan::{Arg, NodePlan};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use tapml_graph::op::Foreign;
use tapml_graph::{DType, Dim, Error, Node as GraphNode, Op, Result, TensorType, ValueId};

/// Functions that formulas share: each stands in a text once.
const SHARED: [&str; 2] = [include_str!("order.wgsl"), include_str!("../gelu/tail.wgsl")];

/// The text where nothing becomes of a result.
const NONE: &str = "fn epilogue(v: f32, at: u32, part: u32) -> f32 {\n    return v;\n}\n";

/// The function `epilogue(v, at, part)` of a result `v`, the element `at` which it is, and the channel `part` of it, with the
/// operands that it reads.
pub struct Epilogue {
    /// The function and what it calls.
    text: String,
    /// What it reads, in the order of its bindings.
    operands: Vec<Arg>,
    /// Values of its `override` constants.
    constants: Vec<(String, f64)>,
    /// Whether the `math` prelude is needed.
    pub math: bool,
    /// The longest chain of sums and differences in it, which follow those of the kernel.
    pub additions: u32,
}

/// The node of a request, or the first of a fused operator's body, and what becomes of its result. Channels are those of
/// dimension `axis`, counted from the end if it is negative.
pub fn with_epilogue<'a>(request: &'a Request, axis: i32) -> Result<(OnnxNode<'a>, Epilogue)> {
    match request.op {
        Op::Foreign(_) => Ok((OnnxNode::from_request(request)?, Epilogue::empty())),
        Op::Fused(_) => {
            let body = FusedBody::of_request(request)?;
            let (first, rest) = body.nodes().split_first().ok_or_else(|| wrong_op(request))?;
            let node = OnnxNode::from_body_node(&body, first)?;
            let ty = node.output(0)?.ty;
            let rank = ty.shape.len() as i32;
            // An axis that the output does not have leaves the function without channels.
            let axis = if axis < 0 { rank + axis } else { axis };
            let axis = usize::try_from(axis).ok().filter(|&axis| axis < ty.shape.len());
            let mut writer = EpilogueWriter::new(&body, ty, axis)?;
            // The result of the first node is the argument of the function.
            writer.values.insert(first.outputs[0], "v".into());
            rest.iter().try_for_each(|node| writer.node(node))?;
            Ok((node, writer.finish()?))
        }
        _ => Err(wrong_op(request)),
    }
}

/// Elements are results of the function alone.
const CHAIN: KernelSource = KernelSource::flat("onnx/chain", "onnx/chain.wgsl", include_str!("chain.wgsl"));

/// Nodes that compute one element after the other, without anything in front of them. Channels are those of the standard, of
/// dimension 1.
pub fn plan_chain(request: &Request) -> Result<NodePlan> {
    let body = FusedBody::of_request(request)?;
    let first = body.nodes().first().ok_or_else(|| wrong_op(request))?;
    let ty = OnnxNode::from_body_node(&body, first)?.output(0)?.ty;
    let sizes = sizes_of(ty)?;
    let mut writer = EpilogueWriter::new(&body, ty, Some(1).filter(|&axis| axis < sizes.len()))?;
    body.nodes().iter().try_for_each(|node| writer.node(node))?;
    let epilogue = writer.finish()?;
    let kernel = KernelSource { math: epilogue.math, ..CHAIN };
    let elements = count(&sizes)?;
    let launch = kernel.launch(ty.dtype, ty.dtype)?.output(0).set("COUNT", elements);
    let launch = launch.set("CHANNELS", sizes.get(1).copied().unwrap_or(1).max(1));
    let launch = launch.set("INNER", count(sizes.get(2..).unwrap_or_default())?.max(1));
    // A formula such as that of the exponential adds by itself.
    let chain = epilogue.additions.max(2);
    let launches = vec![epilogue.join(launch, kernel.text, 1).flat(Dim::from(u64::from(elements)))];
    Ok(plan_with(&kernel, launches, Vec::new(), chain))
}

impl Epilogue {
    /// The function that gives back its first argument.
    pub fn empty() -> Epilogue {
        Epilogue { text: NONE.into(), operands: Vec::new(), constants: Vec::new(), math: false, additions: 0 }
    }

    /// Puts the function behind a kernel's text, which has so many bindings, and binds what it reads.
    pub fn join(self, launch: LaunchBuilder, text: &str, bindings: usize) -> LaunchBuilder {
        let mut whole = text.to_string();
        let operands = self.operands.len();
        for at in 0..operands {
            let binding = bindings + at;
            whole += &format!("@group(0) @binding({binding}) var<storage, read> operand{at}: array<act>;\n");
        }
        whole += &format!("@group(0) @binding({}) var<uniform> symbols: Symbols;\n", bindings + operands);
        whole += &self.text;
        let launch = self.operands.into_iter().fold(launch.text(whole), LaunchBuilder::read);
        self.constants.iter().fold(launch, |launch, (name, value)| launch.set(name, *value))
    }
}

/// The function in the making.
struct EpilogueWriter<'a> {
    /// The nodes.
    body: &'a FusedBody<'a>,
    /// The type of every value within.
    ty: &'a TensorType,
    /// Its sizes.
    sizes: Vec<u32>,
    /// The dimension of channels, if there are such.
    axis: Option<usize>,
    /// The expression of each value that is computed.
    values: HashMap<ValueId, String>,
    /// The longest chain of additions that each of these ends; one without an entry ends none.
    additions: HashMap<ValueId, u32>,
    /// Each is bound a single time, however many nodes read it.
    operands: Vec<(ValueId, Arg)>,
    /// Values of constants, under their numbered names.
    constants: Vec<(String, f64)>,
    /// Shared functions that some formula calls.
    shared: Vec<&'static str>,
    /// Formulas, renamed, and declarations of constants.
    functions: String,
    /// The lines of the function so far.
    lines: String,
    /// Whether some formula needs the `math` prelude.
    math: bool,
}

impl<'a> EpilogueWriter<'a> {
    /// Nothing written yet.
    fn new(body: &'a FusedBody<'a>, ty: &'a TensorType, axis: Option<usize>) -> Result<EpilogueWriter<'a>> {
        Ok(EpilogueWriter {
            body,
            ty,
            sizes: sizes_of(ty)?,
            axis,
            values: HashMap::new(),
            additions: HashMap::new(),
            operands: Vec::new(),
            constants: Vec::new(),
            shared: Vec::new(),
            functions: String::new(),
            lines: String::new(),
            math: false,
        })
    }

    /// Writes a line for a node. Fails if its output has another type than the first one's.
    fn node(&mut self, given: &'a GraphNode) -> Result<()> {
        let node = OnnxNode::from_body_node(self.body, given)?;
        if node.output(0)?.ty != self.ty || given.outputs.len() != 1 {
            return Err(node.unserved_error(&format!("such an output beside {}", self.ty)));
        }
        let v = |writer: &mut Self, at: usize| writer.value(&node, given.inputs[at]);
        let text = match node.op.name() {
            "Identity" => v(self, 0)?,
            "Clip" => self.clip(&node, given)?,
            "BatchNormalization" => self.write_batch_norm(&node, given)?,
            name => match formula_of_floats(name) {
                Some(formula) => {
                    pairs::expect_pair(&node)?;
                    let (a, b) = (v(self, 0)?, v(self, 1)?);
                    self.math |= name == "Pow";
                    format!("{}({a}, {b})", self.function(formula, &[]))
                }
                None => {
                    let formula = map::formula(&node)?;
                    let v = v(self, 0)?;
                    self.math = true;
                    format!("{}({v})", self.function(formula.text, &formula.constants))
                }
            },
        };
        // Values are counted, so that each node has a name of its own.
        let name = format!("v{}", self.values.len());
        writeln!(self.lines, "    let {name} = {text};").map_err(|e| Error::bug(e.to_string()))?;
        self.values.insert(given.outputs[0], name);
        let before = given.inputs.iter().filter_map(|id| self.additions.get(id)).max().copied().unwrap_or(0);
        self.additions.insert(given.outputs[0], before + additions_of(node.op.name()));
        Ok(())
    }

    /// Adds the function of a formula under a name of its own, with its constants.
    fn function(&mut self, mut text: &'static str, constants: &[(&'static str, f64)]) -> String {
        // A text begins with the shared functions that it calls: they are cut off, and written in front of all.
        while let Some(shared) = SHARED.iter().find(|shared| text.starts_with(**shared)) {
            text = &text[shared.len()..];
            if !self.shared.contains(shared) {
                self.shared.push(shared);
            }
        }
        let number = self.values.len();
        self.functions += &rename_declarations(text, number);
        self.functions.push('\n');
        self.constants.extend(constants.iter().map(|(name, value)| (format!("{name}_{number}"), *value)));
        format!("formula_{number}")
    }

    /// A value that is computed, or an operand that stretches to the result.
    fn value(&mut self, node: &OnnxNode, id: ValueId) -> Result<String> {
        if let Some(known) = self.values.get(&id) {
            return Ok(known.clone());
        }
        let ty = self.body.ty(id);
        let own = broadcast_strides(&sizes_of(ty)?, &self.sizes)?;
        let all = strides(&self.sizes);
        let alike = |(d, stride): (usize, &u32)| self.sizes[d] == 1 || *stride == all[d];
        let only =
            |(d, stride): (usize, &u32)| self.sizes[d] == 1 || *stride == u32::from(Some(d) == self.axis);
        // A size of 1 says nothing about the stride: any form serves it.
        let place = if own.iter().all(|&stride| stride == 0) {
            "0"
        } else if own.iter().enumerate().all(alike) {
            "at"
        } else if own.iter().enumerate().all(only) {
            "part"
        } else {
            return Err(node.unserved_error(&format!("an operand of {ty} beside {}", self.ty)));
        };
        self.read(node, id, place)
    }

    /// The expression that reads an operand at a place, which is an expression too.
    fn read(&mut self, node: &OnnxNode, id: ValueId, place: &str) -> Result<String> {
        let ty = self.body.ty(id);
        if ty.dtype != self.ty.dtype || !matches!(ty.dtype, DType::F32 | DType::F16) {
            return Err(node.unserved_error(&format!("an operand of {} beside {}", ty.dtype, self.ty.dtype)));
        }
        let known = self.operands.iter().position(|(own, _)| *own == id);
        let number = match known {
            Some(number) => number,
            None => {
                self.operands.push((id, self.body.read(id)?));
                self.operands.len() - 1
            }
        };
        Ok(format!("f32(operand{number}[{place}])"))
    }

    /// As `clip.wgsl`. The limits are attributes up to version 10, inputs of one element after it.
    fn clip(&mut self, node: &OnnxNode, given: &GraphNode) -> Result<String> {
        node.reads(&["min", "max"])?;
        let mut text = self.value(node, given.inputs[0])?;
        let mut ids = node.op.place_inputs(given.inputs.iter().copied()).into_iter().skip(1);
        for (name, order) in [("min", "<"), ("max", ">")] {
            let limit = match ids.next().flatten() {
                Some(id) if sizes_of(self.body.ty(id))?.iter().all(|&size| size == 1) => {
                    self.read(node, id, "0")?
                }
                Some(id) => return Err(node.unserved_error(&format!("a limit of {}", self.body.ty(id)))),
                None if node.op.attributes().contains_key(name) => {
                    let constant = format!("LIMIT_{name}_{}", self.values.len());
                    self.functions += &format!("override {constant}: f32;\n");
                    self.constants.push((constant.clone(), node.float(name, 0.0)?));
                    constant
                }
                None => continue,
            };
            let inner = format!("{name}_{}", self.values.len());
            writeln!(self.lines, "    let {inner} = {text};").map_err(|e| Error::bug(e.to_string()))?;
            // Comparisons keep NaN, which `clamp` need not.
            text = format!("select({inner}, {limit}, {inner} {order} {limit})");
        }
        Ok(text)
    }

    /// As `batch_norm.wgsl`.
    fn write_batch_norm(&mut self, node: &OnnxNode, given: &GraphNode) -> Result<String> {
        let channels = self.sizes.get(1).copied().unwrap_or(1);
        if self.axis != Some(1) {
            return Err(node.unserved_error("channels of that dimension"));
        }
        normalise::expect_statistics(node, channels)?;
        let v = self.value(node, given.inputs[0])?;
        let mut part = |at: usize| self.read(node, given.inputs[at], "part");
        let (scale, bias, mean, variance) = (part(1)?, part(2)?, part(3)?, part(4)?);
        let constant = format!("EPS_{}", self.values.len());
        self.functions += &format!("override {constant}: f32;\n");
        self.constants.push((constant.clone(), node.float("epsilon", 1e-5)?));
        Ok(format!("fma(({v} - {mean}) / sqrt({variance} + {constant}), {scale}, {bias})"))
    }

    /// Fails unless the body gives exactly one value, computed within.
    fn finish(self) -> Result<Epilogue> {
        let [output] = self.body.results()[..] else {
            return Err(Error::unsupported("the kernel gives one output"));
        };
        let result =
            self.values.get(&output).ok_or_else(|| Error::unsupported("the output is not computed"))?;
        let EpilogueWriter { shared, functions, lines, .. } = &self;
        let text = format!(
            "{}{functions}fn epilogue(v: f32, at: u32, part: u32) -> f32 {{\n{lines}    return {result};\n}}\n",
            shared.concat()
        );
        let operands = self.operands.into_iter().map(|(_, arg)| arg).collect();
        let additions = self.additions.get(&output).copied().unwrap_or(0);
        Ok(Epilogue { text, operands, constants: self.constants, math: self.math, additions })
    }
}

/// Dependent additions of a node to its operands.
fn additions_of(name: &str) -> u32 {
    match name {
        "Add" | "Sub" => 1,
        // The mean is taken away, and the bias added.
        "BatchNormalization" => 2,
        _ => 0,
    }
}

/// A formula's text with the number behind the names of the functions and constants that it declares.
fn rename_declarations(text: &'static str, number: usize) -> String {
    let of_name = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let end_of_name = |text: &str| text.find(|c| !of_name(c)).unwrap_or(text.len());
    // Declarations begin their lines.
    let declared = |line: &'static str| ["fn ", "override "].iter().find_map(|word| line.strip_prefix(word));
    let names: HashSet<&str> =
        text.lines().filter_map(declared).map(|rest| &rest[..end_of_name(rest)]).collect();
    let mut made = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find(of_name) {
        let (before, from) = rest.split_at(begin);
        let (name, after) = from.split_at(end_of_name(from));
        made += before;
        // Formulas of pairs name the type of numbers, which is a float here.
        made += if name == "val" { "f32" } else { name };
        if names.contains(name) {
            made += &format!("_{number}");
        }
        rest = after;
    }
    made + rest
}

impl<'a> OnnxNode<'a> {
    /// A node of a fused operator's body. Inputs that are computed within have no place among those of the operator.
    fn from_body_node(body: &FusedBody<'a>, node: &'a GraphNode) -> Result<OnnxNode<'a>> {
        let Op::Foreign(op) = &node.op else {
            return Err(Error::unsupported(format!("the kernel does not serve `{}` within", node.op.name())));
        };
        let op: &'a Foreign = op;
        let placed =
            |id: &ValueId| super::Placed { index: body.input(*id).unwrap_or(usize::MAX), ty: body.ty(*id) };
        let inputs: Vec<_> = node.inputs.iter().map(placed).collect();
        let mut outputs = node.outputs.iter().map(|id| super::Placed { index: 0, ty: body.ty(*id) });
        let outputs = op.outputs().iter().map(|output| output.is_asked().then(|| outputs.next()).flatten());
        Ok(OnnxNode { op, outputs: outputs.collect(), inputs: op.place_inputs(inputs) })
    }
}

#[cfg(test)]
mod tests {
    use crate::test_device::test_device;
    use crate::wgsl::parse_declarations;
    use crate::{NodePlan, Overrides, Phase, plan_node};
    use tapml_device::Limits;
    use tapml_graph::{Dim, Graph};

    /// The plan of a graph that becomes one fused node, whose source is valid.
    fn plan(fusion: &str, nodes: &str) -> NodePlan {
        let info = test_device(Limits::WEBGPU, false);
        let graph = Graph::parse(&format!("graph g\ninput x: f32[2,4]\ninput r: f32[2,4]\n{nodes}")).unwrap();
        let fusion = tapml_graph::fusion::find(fusion).unwrap();
        let fused = fusion.apply(&graph, &mut |_, _| true).unwrap().unwrap();
        let [node] = fused.nodes() else { panic!("one node expected:\n{fused}") };
        let types: Vec<_> = node.inputs.iter().map(|&id| fused.value(id).ty.clone()).collect();
        let plan = plan_node(&node.op, &types, Phase::Prefill, &info, &Overrides::default()).unwrap();
        for launch in &plan.launches {
            parse_declarations(&launch.desc.source, launch.desc.needs_f16).unwrap();
        }
        plan
    }

    #[test]
    fn formulas_with_constants_of_the_same_name_stand_in_one_chain() {
        let nodes = "a: f32[2,4] = onnx.Elu@6(x) {\"alpha\":0.5}\nb: f32[2,4] = onnx.Selu@6(a)\n\
                     c: f32[2,4] = onnx.Elu@6(b)\noutput c = c\n";
        plan("elementwise_chain", nodes);
    }

    #[test]
    fn additions_behind_a_result_are_declared() {
        let sums = "a: f32[2,4] = onnx.Add@14(v, r)\nb: f32[2,4] = onnx.Sub@14(a, r)\n\
                    c: f32[2,4] = onnx.Add@14(b, b)\nd: f32[2,4] = onnx.Add@14(c, a)\noutput d = d\n";
        let chain = plan("elementwise_chain", &format!("v: f32[2,4] = onnx.Relu@14(x)\n{sums}"));
        assert_eq!(chain.accumulate.chain, Dim::from(4u64));
        let product = plan(
            "matmul_epilogue",
            &format!("weight w: f32[4,4]\nv: f32[2,4] = onnx.MatMul@13(x, w)\n{sums}"),
        );
        // Four terms and what is added to the sum, then the nodes.
        assert_eq!(product.accumulate.chain, Dim::from(9u64));
    }
}
