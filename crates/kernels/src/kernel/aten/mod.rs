//! Kernels of PyTorch's operators: those of the operators that define them ([`tapml_graph::aten`]), one after the other, with
//! what lies between them in scratch memory. What only changes a shape is no launch: the same buffer has another type then.
//!
//! A plan of such an operator is a small program: arguments of each step's launches are moved to where the
//! definition's values lie. Steps are planned without a user's kernels, which stand for whole operators.

use super::Request;
use super::source::wrong_op;
use crate::plan::{Accumulate, Arg, NodePlan, Scratch};
use std::collections::HashMap;
use tapml_graph::aten::{Definition, OperandSource, define};
use tapml_graph::op::Foreign;
use tapml_graph::{DType, Dim, Error, Extent, Op, Result, TensorType};

/// Operators of a definition that change nothing but the shape.
const VIEWS: [&str; 1] = ["Reshape"];
/// The operator that copies a value.
const COPY: &str = "onnx.Identity@14";

/// Plans an operator by its definition. The plan is named by the step that adds up most, the last of equals.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Foreign(op) = request.op else { return Err(wrong_op(request)) };
    // The definition depends on the types of the inputs, as given here.
    let definition = define(op, &op.place_inputs(request.inputs.iter().cloned()))?;
    let mut composition = Composition::new(request, op, &definition)?;
    for at in 0..definition.steps.len() {
        composition.add_step(at)?;
    }
    // Outputs that are views of inputs, of constants or of other outputs need memory of their own.
    for (from, to) in std::mem::take(&mut composition.copies) {
        composition.add_copy(from, to)?;
    }
    Ok(composition.plan)
}

/// A plan in the making.
struct Composition<'a> {
    /// The operator.
    request: &'a Request<'a>,
    /// Its steps.
    definition: &'a Definition,
    /// The launches so far; constants of the definition come first among its constants.
    plan: NodePlan,
    /// Of each input that is there, by its place, its number.
    numbers: Vec<Option<usize>>,
    /// Where the values are that are no views of others.
    places: HashMap<OperandSource, Arg>,
    /// Values that are outputs and lie elsewhere: where, and which output.
    copies: Vec<(Arg, usize)>,
}

impl<'a> Composition<'a> {
    /// Places the outputs: a step that makes one writes it directly.
    fn new(request: &'a Request<'a>, op: &Foreign, definition: &'a Definition) -> Result<Composition<'a>> {
        let plan = NodePlan {
            kernel: String::new(),
            hash: String::new(),
            launches: Vec::new(),
            scratch: Vec::new(),
            constants: definition.constants.iter().map(|tensor| pad_to_words(tensor.bytes())).collect(),
            accumulate: Accumulate::new(DType::F32, Dim::from(0u64)),
            in_place: Vec::new(),
            axes: Vec::new(),
        };
        let numbers = op.place_inputs(0..request.inputs.len());
        let (places, copies) = (HashMap::new(), Vec::new());
        let mut made = Composition { request, definition, plan, numbers, places, copies };
        let outputs = definition.outputs.iter().flatten();
        for (output, &source) in outputs.enumerate() {
            let root = made.root(source);
            match root {
                OperandSource::Step(..) if !made.places.contains_key(&root) => {
                    made.places.insert(root, Arg::Output(output));
                }
                _ => {
                    let from = made.place(root)?;
                    made.copies.push((from, output));
                }
            }
        }
        Ok(made)
    }

    /// What a value is a view of.
    fn root(&self, mut source: OperandSource) -> OperandSource {
        while let OperandSource::Step(step, _) = source {
            let step = &self.definition.steps[step];
            match step.inputs.first().copied().flatten() {
                Some(viewed) if VIEWS.contains(&step.op.name()) => source = viewed,
                _ => break,
            }
        }
        source
    }

    /// Where a value is.
    fn place(&self, source: OperandSource) -> Result<Arg> {
        let missing = || Error::bug("a definition reads what is not there");
        match self.root(source) {
            OperandSource::Input(place) => {
                self.numbers.get(place).copied().flatten().map(Arg::whole_input).ok_or_else(missing)
            }
            OperandSource::Constant(at) => Ok(Arg::Constant(at)),
            step => self.places.get(&step).copied().ok_or_else(missing),
        }
    }

    /// Adds the launches of a step; what it makes lies in an output or in scratch of its own.
    fn add_step(&mut self, at: usize) -> Result<()> {
        let step = &self.definition.steps[at];
        if VIEWS.contains(&step.op.name()) {
            return Ok(());
        }
        let given = step.inputs.iter().flatten().map(|&source| self.place(source));
        let given = given.collect::<Result<Vec<Arg>>>()?;
        let op = Op::Foreign(step.op.clone());
        // A definition tells the types of inputs alone.
        let outputs = op.infer(&step.types)?;
        let mut made = Vec::new();
        for (place, ty) in outputs.iter().enumerate() {
            let source = OperandSource::Step(at, place);
            let arg = match self.places.get(&source) {
                Some(&arg) => arg,
                None => {
                    self.plan.scratch.push(Scratch::Temporary(Extent::from_dim(bytes(ty)?)));
                    Arg::Scratch(self.plan.scratch.len() - 1)
                }
            };
            self.places.insert(source, arg);
            made.push(arg);
        }
        self.add(&op, &step.types, &given, &made)
    }

    /// Adds a launch that copies a value to an output.
    fn add_copy(&mut self, from: Arg, output: usize) -> Result<()> {
        let ty = &self.request.outputs[output];
        let declared = vec![tapml_graph::op::DeclaredType::As(ty.clone())];
        let op = Op::Foreign(Foreign::new(COPY, Default::default(), vec![true], declared)?);
        self.add(&op, std::slice::from_ref(ty), &[from], &[Arg::Output(output)])
    }

    /// Adds the plan of an operator whose inputs and outputs lie there.
    fn add(&mut self, op: &Op, types: &[TensorType], given: &[Arg], made: &[Arg]) -> Result<()> {
        let (phase, info) = (self.request.phase, self.request.info);
        let step = (self.request.plan_step)(op, types, phase, info)?;
        let (scratch, constants) = (self.plan.scratch.len(), self.plan.constants.len());
        let moved = |arg: Arg| match arg {
            Arg::Input { index, offset, len } => match given[index] {
                Arg::Input { index, .. } => Ok(Arg::Input { index, offset, len }),
                // Scratch and constants are bound as a whole only.
                other if offset == 0 && len == 0 => Ok(other),
                _ => Err(Error::unsupported(format!(
                    "`{}` binds a part of what another step makes",
                    step.kernel
                ))),
            },
            Arg::Output(output) => Ok(made[output]),
            Arg::Scratch(at) => Ok(Arg::Scratch(scratch + at)),
            Arg::Constant(at) => Ok(Arg::Constant(constants + at)),
            Arg::Symbols => Ok(Arg::Symbols),
        };
        // Several steps may have one kernel, with other formulas. A kernel of one's own stands for that of one step alone.
        let first = self.plan.launches.len();
        let named = |name: &str| format!("{name}#{first}");
        let mut launches = step.launches;
        for launch in &mut launches {
            launch.desc.name = named(&launch.desc.name);
            launch.args = launch.args.iter().map(|&arg| moved(arg)).collect::<Result<_>>()?;
        }
        // A chain that grows with the run counts as the longest.
        let longest = |chain: &Dim| chain.as_const().unwrap_or(u64::MAX);
        let plan = &mut self.plan;
        if plan.kernel.is_empty() || longest(&step.accumulate.chain) >= longest(&plan.accumulate.chain) {
            plan.kernel = named(&step.kernel);
            plan.accumulate = step.accumulate;
        }
        plan.launches.extend(launches);
        plan.scratch.extend(step.scratch);
        plan.constants.extend(step.constants);
        plan.axes.extend(step.axes);
        Ok(())
    }
}

/// Bytes of a buffer for such a value: whole words, and not empty.
fn bytes(ty: &TensorType) -> Result<u64> {
    let sizes = ty.sizes(&tapml_graph::Symbols::new())?;
    let bytes = tapml_graph::byte_len(ty.dtype, &sizes).map(|bytes| bytes as u64);
    let bytes = bytes.ok_or_else(|| Error::unsupported(format!("{ty} is too large")))?;
    Ok(bytes.next_multiple_of(4).max(4))
}

/// The bytes of a constant buffer.
fn pad_to_words(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4).max(4), 0);
    bytes
}
