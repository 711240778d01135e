//! Choosing among the built-in kernels and their settings by measurement: one counts only if it passes the carved calls of
//! its operator, and the fastest of those is chosen for each operator at the types that the model has as the device runs
//! it. A fused operator is left unfused where the operators that then stand in its place are faster.
//!
//! Three graphs meet here: the model's, the lowered one with all fused operators, and lowered ones with
//! some left out. A choice holds for an operator at given input types on one device, as its name and driver
//! say.

mod kept;
mod keys;
mod lowerings;
mod time;

pub use kept::cache_file;
pub(crate) use kept::choices;

use crate::job::CarveJob;
use crate::model::{GraphOptions, suite_model};
use crate::onnx::Inputs;
use crate::platform::{self, PlatformSpec};
use crate::prompts::Prompts;
use keys::{Key, Views, prove};
use lowerings::{Lowerer, Lowering, TunePlace, Unfused};
use serde::Serialize;
use std::path::{Path, PathBuf};
use tapml_device::DeviceInfo;
use tapml_graph::{Error, Model, Result, TensorType};
use tapml_import::onnx::is_onnx;
use tapml_kernels::{Choice, Overrides, TuningCache, UNFUSED};
use tapml_migrate::suite::Suite;
use tapml_migrate::{Progress, Stop};

/// Measures the variants of a model's operators on a device.
///
/// The result is a `TuningCache`; the caller decides where it is kept.
#[derive(Clone, Debug)]
pub struct TuneJob {
    /// Checkpoint folder, GGUF or ONNX file, or a suite of operators of others.
    pub model: PathBuf,
    /// The device.
    pub target: String,
    /// Where the model is carved, if it is.
    pub source: String,
    /// Arrays for the inputs of an ONNX model, in the place of prompts.
    pub inputs: Inputs,
    /// A suite of the model; carved for the time being if there is none.
    pub suite: Option<PathBuf>,
    /// What the model reads, if it is carved.
    pub prompts: Prompts,
    /// How the checkpoint becomes a graph, if it is carved.
    pub graph: GraphOptions,
    /// Which calls the kernels are to be fast for.
    pub phase: Phase,
}

/// What a model spends its time with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Steps of one token: the call of the most cached ones is timed.
    #[default]
    Decode,
    /// Prompts: the call of the most new tokens is timed.
    Prompt,
}

/// What was found for one operator at given types.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tuned {
    /// Operator.
    pub op: String,
    /// Types of its inputs.
    pub inputs: Vec<String>,
    /// Nodes of the graph as the device runs it.
    pub nodes: usize,
    /// The kernel that was chosen; [`UNFUSED`] if the operators that a fused one stands for are to run.
    pub kernel: String,
    /// Seconds of one run of each kernel that passed, by name, and of what stands in a fused operator's place.
    pub seconds: Vec<(String, f64)>,
    /// Kernels that did not pass their calls.
    pub failed: Vec<String>,
}

/// What is compared: the model as the device runs it, and the same without fused operators.
struct Compared {
    whole: Lowering,
    unfused: Vec<Unfused>,
}

impl TuneJob {
    /// Tunes. Gives the choices and what they rest on.
    ///
    /// # Errors
    /// If the target has no kernels, something cannot be opened, or a run fails for another reason than a
    /// wrong kernel.
    pub fn run(&self, progress: &dyn Progress, stop: &Stop) -> Result<(TuningCache, Vec<Tuned>)> {
        let spec = PlatformSpec::parse(&self.target)?;
        if spec.word == "cpu" {
            return Err(Error::invalid("`cpu` has no kernels to choose among").with_hint("try `vulkan`"));
        }
        let recorded = Suite::is_at(&self.model).then_some(&self.model);
        match self.suite.as_ref().or(recorded) {
            Some(suite) => self.tune(&spec, suite, progress, stop),
            None => {
                let folder = tapml_files::Temporary::new("tapml-tune-")?;
                let suite = folder.path().join("suite");
                self.carve(&suite, progress, stop)?;
                self.tune(&spec, &suite, progress, stop)
            }
        }
    }

    /// A suite of few steps in a temporary folder; the weights stay in the checkpoint.
    fn carve(&self, out: &Path, progress: &dyn Progress, stop: &Stop) -> Result<()> {
        let job = CarveJob {
            inputs: self.inputs.clone(),
            model: self.model.clone(),
            out: out.to_path_buf(),
            prompts: self.prompts.clone(),
            overwrite: false,
            source: self.source.clone(),
            // An ONNX model takes none.
            steps: (!is_onnx(&self.model)).then_some(2),
            self_contained: false,
            graph: self.graph,
        };
        job.run(progress, stop).map(drop)
    }

    /// Prove first, time after: a wrong kernel is never timed.
    fn tune(
        &self,
        spec: &PlatformSpec,
        suite: &Path,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<(TuningCache, Vec<Tuned>)> {
        let suite = Suite::open(suite)?;
        // A suite of operators of others holds its weights.
        let checkpoint = !is_onnx(&self.model) && !Suite::is_at(&self.model);
        let model = suite_model(&suite, checkpoint.then_some(self.model.as_path()))?;
        let phase = self.phase.of_runs(&suite);
        // What was chosen before has no say.
        let mut platform = platform::open_with_kernels(&untuned_spec(spec), Overrides::default())?;
        let info = platform.device_info().clone();
        let lowerer = Lowerer::new(suite.graph(), &info, phase)?;
        let compared = Compared::new(&lowerer)?;
        let views = Views::new(&suite, &compared.lowerings(), phase)?;
        let mut keys = compared.keys(&views, &info, phase);
        prove(&views, &model, &mut platform, &mut keys, progress, stop)?;
        // Timing opens the device anew, so that compiled programs of the proof take no memory.
        drop(platform);
        time(&views, &model, spec, &mut keys, progress, stop)?;
        let (without, times) = compared.decide(&keys);
        let chosen = lowerer.lower_without(without)?;
        let mut choices = TuningCache::new(&platform::as_it_says(spec, &info));
        let mut report = Vec::new();
        for place in compared.places(&chosen) {
            let Some(key) = keys.iter().find(|key| key.place == *place) else { continue };
            let left = chosen.without.contains(place);
            let unfused = times.iter().find(|(known, _)| known == place).map(|(_, seconds)| *seconds);
            // A choice of one says nothing.
            if key.kernels().count() < 2 && unfused.is_none() && !left {
                continue;
            }
            let nodes = if left { compared.whole.nodes(place) } else { chosen.nodes(place) };
            let tuned = tuned_place(key, nodes, left, unfused);
            if !tuned.kernel.is_empty() {
                choices.add(Choice::new(&place.op, &place.inputs, &tuned.kernel, tuned.seconds.clone()));
            }
            // What would only take the place of one that is left out stands in no graph.
            if nodes > 0 || !tuned.failed.is_empty() {
                report.push(tuned);
            }
        }
        Ok((choices, report))
    }
}

impl Phase {
    /// The phase of a suite's runs to choose kernels for: an encoder has no steps of one token.
    fn of_runs(self, suite: &Suite) -> tapml_kernels::Phase {
        let (wanted, other) = match self {
            Phase::Decode => (tapml_kernels::Phase::Decode, tapml_kernels::Phase::Prefill),
            Phase::Prompt => (tapml_kernels::Phase::Prefill, tapml_kernels::Phase::Decode),
        };
        let has =
            |phase| suite.frames().iter().any(|frame| tapml_kernels::Phase::of_run(&frame.symbols) == phase);
        if has(wanted) { wanted } else { other }
    }
}

impl Compared {
    /// Lowers the model with everything fused, then without each fused operator.
    fn new(lowerer: &Lowerer<'_>) -> Result<Compared> {
        let whole = lowerer.lower_without(Vec::new())?;
        let unfused = lowerer.find_unfused(&whole)?;
        Ok(Compared { whole, unfused })
    }

    /// The whole one first.
    fn lowerings(&self) -> Vec<&Lowering> {
        std::iter::once(&self.whole).chain(self.unfused.iter().flat_map(|u| &u.lowerings)).collect()
    }

    /// What is measured: where there is a choice, and what makes the lowerings differ.
    fn keys(&self, views: &Views<'_>, info: &DeviceInfo, phase: tapml_kernels::Phase) -> Vec<Key> {
        let mut places: Vec<(TunePlace, bool)> =
            self.whole.places.iter().map(|(place, _)| (place.clone(), false)).collect();
        for lowering in self.unfused.iter().flat_map(|u| &u.lowerings) {
            for (place, _) in lowering.difference(&self.whole) {
                match places.iter_mut().find(|(known, _)| *known == place) {
                    Some((_, differs)) => *differs = true,
                    None => places.push((place, true)),
                }
            }
        }
        let key = |(place, differs): &(TunePlace, bool)| {
            Key::for_place(place, views, info, phase).filter(|key| *differs || key.kernels().count() > 1)
        };
        places.iter().filter_map(key).collect()
    }

    /// The fused operators to leave out, and the seconds of what stands in the place of one node of each.
    ///
    /// A fused operator that no kernel runs right is left out whatever it would save.
    fn decide(&self, keys: &[Key]) -> (Vec<TunePlace>, Vec<(TunePlace, f64)>) {
        let (mut without, mut times) = (Vec::new(), Vec::new());
        for Unfused { place, lowerings } in &self.unfused {
            let own = keys.iter().find(|key| key.place == *place).and_then(Key::fastest);
            let Some((_, own)) = own else {
                // No kernel of it is right, or no run reaches it.
                if keys.iter().any(|key| key.place == *place) {
                    without.extend(lowerings.iter().take(1).flat_map(|l| l.without.clone()));
                }
                continue;
            };
            let costs = lowerings.iter().filter_map(|l| Some((l, cost(&l.difference(&self.whole), keys)?)));
            // Of the lowerings without it the fastest counts.
            let Some((best, more)) = costs.min_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
            times.push((place.clone(), own + more / self.whole.nodes(place).max(1) as f64));
            // Seconds more than the whole: a negative number is a gain.
            if more < 0.0 {
                without.extend(best.without.clone());
            }
        }
        (without, times)
    }

    /// Every place of the whole lowering, then those of the chosen one beside, then what is left out beside.
    fn places<'a>(&'a self, chosen: &'a Lowering) -> Vec<&'a TunePlace> {
        let mut all: Vec<&TunePlace> = Vec::new();
        let lowered = self.whole.places.iter().chain(&chosen.places).map(|(place, _)| place);
        for place in lowered.chain(&chosen.without) {
            let stands = chosen.has(place) || chosen.without.contains(place);
            if stands && !all.contains(&place) {
                all.push(place);
            }
        }
        all
    }
}

/// Seconds that so many more nodes take; `None` if one of them was not measured.
fn cost(difference: &[(TunePlace, i64)], keys: &[Key]) -> Option<f64> {
    let one = |(place, count): &(TunePlace, i64)| {
        let (_, seconds) = keys.iter().find(|key| key.place == *place)?.fastest()?;
        Some(*count as f64 * seconds)
    };
    difference.iter().map(one).sum()
}

/// Times every kernel that passed.
fn time(
    views: &Views<'_>,
    model: &Model,
    spec: &PlatformSpec,
    keys: &mut [Key],
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<()> {
    let mut device = platform::open_for_plans(&platform::without_memory(spec))?;
    progress.stage("time", keys.len() as u64);
    for key in keys {
        stop.check()?;
        tapml_exec::repeat(&mut device, |device| key.time(views, model, device.as_mut()))?;
        progress.advance(1);
    }
    Ok(())
}

/// What is told of a place: the fastest kernel, or that it is left unfused.
fn tuned_place(key: &Key, nodes: usize, left: bool, unfused: Option<f64>) -> Tuned {
    let fastest = key.fastest().map(|(kernel, _)| kernel.clone()).unwrap_or_default();
    let mut seconds = key.seconds.clone();
    seconds.extend(unfused.map(|seconds| (UNFUSED.to_string(), seconds)));
    Tuned {
        op: key.place.op.name().to_string(),
        inputs: key.place.inputs.iter().map(TensorType::to_string).collect(),
        nodes,
        kernel: if left { UNFUSED.into() } else { fastest },
        seconds,
        failed: key.failed_kernels(),
    }
}

/// The spec without choices, kept or named.
fn untuned_spec(spec: &PlatformSpec) -> PlatformSpec {
    let mut untuned = spec.clone();
    untuned.options.retain(|(name, _)| name != "tuning");
    untuned.options.push(("tuning".into(), "off".into()));
    untuned
}
