//! What a model would take on a target, from its configuration alone: the graph at full size, every kernel specialised
//! and validated, and the memory of a compiled program. No weight is read and no device is opened.
//!
//! A plan is for weights in f16, with the size that they would have in 4 bits beside it, and, if a scheme is given, for
//! weights that are quantised by it.
//!
//! The same code plans for a real device, so a dry run finds what loading would find. Plans are shared
//! between models by operator, types and attributes.

mod fit;
mod list;
mod target;

use crate::speed::traffic;
pub use fit::Fit;
pub use list::{ListedModel, read_list};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use tapml_graph::{DType, Error, ErrorKind, Graph, Result, Symbols, fuse};
use tapml_import::quantize::{Scheme, quantize_graph};
use tapml_import::{ARCHITECTURES, Config, ImportOptions, LogitRows, Outline};
use tapml_kernels::{CompileOptions, Overrides, Phase, Planner, ProgramMemory, Validator, compile_with};
pub use target::{TARGETS, Target};

// The form of ggml's `Q4_0`.
/// Weights that share a scale, and the bytes that they and it take: 32 times 4 bits and one f16.
const GROUP: u64 = 32;
const GROUP_BYTES: u64 = 18;

/// The lengths that are planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Lengths {
    /// Most tokens of one step.
    pub step_tokens: u64,
    /// Most positions of a sequence, where the model's own context is not shorter.
    pub positions: u64,
}

impl Default for Lengths {
    fn default() -> Lengths {
        Lengths { step_tokens: 512, positions: 4096 }
    }
}

/// A model on every target asked for.
#[derive(Clone, Debug, Serialize)]
pub struct ModelPlan {
    /// Its name.
    pub model: String,
    /// `model_type` of its configuration.
    pub model_type: String,
    /// Its size, if the architecture is known and the configuration is served.
    pub size: Option<ModelSize>,
    /// One for each target, in their order.
    pub targets: Vec<TargetPlan>,
}

/// What does not depend on the target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelSize {
    /// Elements of all weights.
    pub parameters: u64,
    /// Nodes of the graph after fusion.
    pub nodes: usize,
    /// Most positions the model was made for.
    pub context: u64,
    /// Most tokens of one step that are planned for.
    pub step_tokens: u64,
    /// Most positions that are planned for.
    pub positions: u64,
    /// Bytes of the weights in f16.
    pub weight_bytes_f16: u64,
    /// Bytes of the weights with matrices in 4 bits.
    pub weight_bytes_q4: u64,
    /// Bytes of caches and other states at that many positions, in f16.
    pub state_bytes: u64,
}

/// A model on one target.
#[derive(Clone, Debug, Serialize)]
pub struct TargetPlan {
    /// [`Target::name`].
    pub target: &'static str,
    /// Dtype of activations and caches.
    pub activation: DType,
    /// With weights in f16.
    pub f16: Fit,
    /// With matrices in 4 bits, by size.
    pub q4: Fit,
    /// Device memory of the program with weights in f16, if it compiles.
    pub memory: Option<ProgramMemory>,
    /// With weights quantised as asked for, if that is; see [`DryRun::with_quantization`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantized: Option<QuantizedPlan>,
}

impl TargetPlan {
    /// The same answer for every form of the weights.
    fn for_refusal(target: &'static Target, fit: Fit, quantized: bool) -> TargetPlan {
        TargetPlan {
            target: target.name,
            activation: target.activation(),
            quantized: quantized.then(|| QuantizedPlan::for_refusal(fit.clone())),
            f16: fit.clone(),
            q4: fit,
            memory: None,
        }
    }

    /// Whether the model fits: with quantised weights if that was asked for, else with weights in f16.
    pub fn fits(&self) -> bool {
        self.quantized.as_ref().map_or(&self.f16, |plan| &plan.fit).fits()
    }
}

/// A model with quantised weights on one target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QuantizedPlan {
    /// Whether it fits.
    pub fit: Fit,
    /// Device memory of the program, if it compiles.
    pub memory: Option<ProgramMemory>,
    /// Bytes of weights and states that a step of one token at the last planned position reads at least, if it compiles.
    pub bytes_per_token: Option<u64>,
}

impl QuantizedPlan {
    fn for_refusal(fit: Fit) -> QuantizedPlan {
        QuantizedPlan { fit, memory: None, bytes_per_token: None }
    }
}

/// A target that models are planned for.
struct PlannedTarget {
    target: &'static Target,
    /// Bytes of memory that are assumed.
    memory: u64,
    /// It remembers plans.
    planner: Planner,
}

/// Plans models for targets. Remembers the plan of each distinct operator, types and attributes, over all models.
pub struct DryRun {
    lengths: Lengths,
    scheme: Option<Scheme>,
    targets: Vec<PlannedTarget>,
    /// Parses and validates WGSL, as an implementation of WebGPU would.
    validator: Validator,
    /// The outcome of validating the kernels of each plan, by [`tapml_kernels::NodePlan::hash`].
    validated: HashMap<String, Result<()>>,
}

impl DryRun {
    /// For these targets with these lengths; `memory` replaces the targets' own bytes of memory. Fails if a target has no
    /// backend.
    ///
    /// A target without known limits is refused here, not planned for with guesses.
    pub fn new(targets: &[&'static Target], memory: Option<u64>, lengths: Lengths) -> Result<DryRun> {
        let planned = targets.iter().map(|&target| {
            let info = target.info().ok_or_else(|| target.unsupported())?;
            let (memory, planner) =
                (memory.unwrap_or(target.memory), Planner::new(info, Overrides::default()));
            Ok(PlannedTarget { target, memory, planner })
        });
        let targets = planned.collect::<Result<_>>()?;
        let (validator, validated) = (Validator::new(), HashMap::new());
        Ok(DryRun { lengths, scheme: None, targets, validator, validated })
    }

    /// The same that also plans every model with its weights quantised by this scheme.
    pub fn with_quantization(self, scheme: Scheme) -> DryRun {
        DryRun { scheme: Some(scheme), ..self }
    }

    /// Plans one model. What does not fit or is not supported is part of the result; so is a configuration that cannot be
    /// right, which fails on every target. Fails only if `model_type` is missing.
    pub fn plan(&mut self, name: &str, config: &Config) -> Result<ModelPlan> {
        let model_type = config.root().text("model_type")?.to_string();
        let known = ARCHITECTURES.iter().any(|a| a.model_types.contains(&model_type.as_str()));
        // Drawn at most two times: targets with f16 and those without differ in the dtype of activations.
        let mut graphs: BTreeMap<bool, Result<Drawn>> = BTreeMap::new();
        let mut plan = ModelPlan { model: name.into(), model_type, size: None, targets: Vec::new() };
        for index in 0..self.targets.len() {
            let target = self.targets[index].target;
            let (activation, quantized) = (target.activation(), self.scheme.is_some());
            let drawn = graphs.entry(target.f16).or_insert_with(|| draw(config, activation, self.lengths));
            let row = match drawn {
                _ if !known => {
                    let reason = Fit::Unsupported { reason: format!("architecture {}", plan.model_type) };
                    TargetPlan::for_refusal(target, reason, quantized)
                }
                Err(e) => TargetPlan::for_refusal(target, Fit::from_error(e), quantized),
                Ok(drawn) => {
                    plan.size.get_or_insert_with(|| drawn.size.clone());
                    self.place(index, drawn)
                }
            };
            plan.targets.push(row);
        }
        Ok(plan)
    }

    /// One model on one target.
    fn place(&mut self, index: usize, drawn: &Drawn) -> TargetPlan {
        let quantized = self.scheme.map(|scheme| self.place_quantized(index, drawn, &scheme));
        let outcome = self.compile(index, &drawn.fused, &drawn.size);
        let PlannedTarget { target, memory: budget, .. } = &self.targets[index];
        let row = match outcome {
            Ok(memory) => {
                let q4 = ProgramMemory { weights: drawn.size.weight_bytes_q4, ..memory };
                let (f16, q4) = (Fit::for_memory(&memory, *budget), Fit::for_memory(&q4, *budget));
                let (target, activation) = (target.name, target.activation());
                TargetPlan { target, activation, f16, q4, memory: Some(memory), quantized: None }
            }
            // By size, a 4-bit model has the same nodes, activations and states, so it does not run either.
            Err(fit) => TargetPlan::for_refusal(target, fit, false),
        };
        TargetPlan { quantized, ..row }
    }

    /// The same with weights packed by the scheme; types change, no value is needed.
    fn place_quantized(&mut self, index: usize, drawn: &Drawn, scheme: &Scheme) -> QuantizedPlan {
        let graph = quantize_graph(&drawn.graph, scheme).and_then(|(graph, _)| fuse(&graph));
        let planned = graph.map_err(|e| Fit::from_error(&e)).and_then(|graph| {
            let memory = self.compile(index, &graph, &drawn.size)?;
            // The last step reads the whole cache.
            let symbols = Symbols::np(1, drawn.size.positions.saturating_sub(1));
            Ok((memory, traffic::of_step(&graph, &symbols).map_err(|e| Fit::from_error(&e))?))
        });
        match planned {
            Ok((memory, bytes)) => QuantizedPlan {
                fit: Fit::for_memory(&memory, self.targets[index].memory),
                memory: Some(memory),
                bytes_per_token: Some(bytes),
            },
            Err(fit) => QuantizedPlan::for_refusal(fit),
        }
    }

    /// Device memory of the program of a graph whose kernels all are valid.
    fn compile(
        &mut self,
        index: usize,
        graph: &Graph,
        size: &ModelSize,
    ) -> std::result::Result<ProgramMemory, Fit> {
        self.validate(index, graph)?;
        let capacity = Symbols::np(size.step_tokens, size.positions);
        let options = CompileOptions { context: Some(size.positions), ..CompileOptions::new(capacity) };
        let program = compile_with(graph, &mut self.targets[index].planner, &options);
        program.map(|p| p.memory()).map_err(|e| Fit::from_error(&e))
    }

    /// Plans every node and validates its kernels; what is wrong with the first that is refused, or which operators are
    /// not supported.
    fn validate(&mut self, index: usize, graph: &Graph) -> std::result::Result<(), Fit> {
        let DryRun { targets, validator, validated, .. } = self;
        let planner = &mut targets[index].planner;
        let mut refused: Vec<Fit> = Vec::new();
        // Both phases: a kernel for one row may be refused where another is not.
        for (node, phase) in graph.nodes().iter().flat_map(|node| Phase::ALL.map(|phase| (node, phase))) {
            let outcome = planner.plan(&node.op, &graph.input_types(node), phase).and_then(|plan| {
                if !validated.contains_key(&plan.hash) {
                    let outcome = plan.launches.iter().try_for_each(|l| validator.check(&l.desc));
                    validated.insert(plan.hash.clone(), outcome);
                }
                validated[&plan.hash].clone()
            });
            if let Err(e) = outcome {
                let fit = Fit::from_error(&e);
                if !refused.contains(&fit) {
                    refused.push(fit);
                }
            }
        }
        Fit::join(refused)
    }
}

/// A model's graph, ready to be placed.
struct Drawn {
    /// As it was imported.
    graph: Graph,
    /// With neighbours fused.
    fused: Graph,
    size: ModelSize,
}

/// Imports and fuses; all weights count as f16.
fn draw(config: &Config, activation: DType, lengths: Lengths) -> Result<Drawn> {
    let options = ImportOptions { activation, logits: LogitRows::Last, ..ImportOptions::default() };
    let outline = Outline::new(config, DType::F16, &options)?;
    let fused = fuse(&outline.graph)?;
    let summary = fused.summary()?;
    let context = outline.context as u64;
    let positions = context.min(lengths.positions);
    // Growing states hold activations; those of constant size are f32 or activations and are counted as they are.
    // In f16, whatever the target's activations are: one number for all targets.
    let row = summary.state_bytes_per_token / activation.size() as u64 * DType::F16.size() as u64;
    let size = ModelSize {
        parameters: summary.parameters,
        nodes: fused.nodes().len(),
        context,
        step_tokens: positions.min(lengths.step_tokens),
        positions,
        weight_bytes_f16: summary.weight_bytes,
        weight_bytes_q4: quantized_bytes(&fused)?,
        state_bytes: row.saturating_mul(positions).saturating_add(summary.state_bytes_fixed),
    };
    Ok(Drawn { graph: outline.graph, fused, size })
}

/// Bytes of the weights when matrices are stored in 4 bits, each [`GROUP`] of a row with a scale in f16. Vectors, and
/// rows shorter than a group, stay as they are.
fn quantized_bytes(graph: &Graph) -> Result<u64> {
    let mut sum = 0u64;
    for (_, value) in graph.weights() {
        let too_large = || Error::invalid(format!("the size of weight `{}` overflows", value.name));
        let sizes = value.ty.sizes(&Symbols::new())?;
        let (width, rows) = sizes.split_last().map_or((1, &sizes[..]), |(&last, rest)| (last as u64, rest));
        let count = rows.iter().try_fold(1u64, |product, &size| product.checked_mul(size as u64));
        let row = if rows.is_empty() || width < GROUP {
            width.checked_mul(value.ty.dtype.size() as u64)
        } else {
            width.div_ceil(GROUP).checked_mul(GROUP_BYTES)
        };
        let bytes = count.zip(row).and_then(|(count, row)| count.checked_mul(row)).ok_or_else(too_large)?;
        sum = sum.checked_add(bytes).ok_or_else(too_large)?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests;
