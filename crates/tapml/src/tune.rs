//! Choosing among the built-in kernels and their settings by measurement: one counts only if it passes the carved calls of
//! its operator, and the fastest of those is chosen for each operator at the types that the model has.

mod time;

use crate::device::DeviceInfo;
use crate::graph::{Model, NodeId, Op, Symbol, Symbols, TensorType};
use crate::jobs::CarveJob;
use crate::kernels::{self, Choice, Choices, NodePlan, Overrides, matters, plan_settings};
use crate::migrate::suite::{Case, Suite};
use crate::migrate::{CheckOptions, Oracles, Progress, Stop, check};
use crate::model::{GraphOptions, suite_model};
use crate::platform::{self, PlatformSpec};
use crate::prompts::Prompts;
use crate::{Error, Result};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tapml_exec::DevicePlatform;

/// Bytes of exact results that are kept.
const ORACLE_BYTES: usize = 256 << 20;
/// Larger files are no choices.
const MAX_BYTES: u64 = 16 << 20;

/// Measures the variants of a model's operators on a device.
#[derive(Clone, Debug)]
pub struct TuneJob {
    /// Checkpoint folder or GGUF file.
    pub model: PathBuf,
    /// The device.
    pub target: String,
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
    /// Steps of one token: the call of the fewest new tokens and the most cached ones is timed.
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
    /// Nodes of the graph.
    pub nodes: usize,
    /// The kernel that was chosen.
    pub kernel: String,
    /// Seconds of one run of each kernel that passed, by name.
    pub seconds: Vec<(String, f64)>,
    /// Kernels that did not pass their calls.
    pub failed: Vec<String>,
}

/// An operator at given types, the call that is timed, and the kernels that make a difference to it.
struct Key {
    op: Op,
    inputs: Vec<TensorType>,
    nodes: Vec<NodeId>,
    call: Case,
    plans: Vec<NodePlan>,
    passed: Vec<String>,
}

impl TuneJob {
    /// Tunes. Gives the choices and what they rest on.
    pub fn run(&self, progress: &dyn Progress, stop: &Stop) -> Result<(Choices, Vec<Tuned>)> {
        let spec = PlatformSpec::parse(&self.target)?;
        if spec.word == "cpu" {
            return Err(Error::invalid("`cpu` has no kernels to choose among").with_hint("try `vulkan`"));
        }
        match &self.suite {
            Some(suite) => self.tune(&spec, suite, progress, stop),
            None => {
                let folder = tempfile::Builder::new().prefix("tapml-tune-").tempdir();
                let folder = folder.map_err(|e| Error::io("create", &std::env::temp_dir(), &e))?;
                let suite = folder.path().join("suite");
                self.carve(&suite, progress, stop)?;
                self.tune(&spec, &suite, progress, stop)
            }
        }
    }

    fn carve(&self, out: &Path, progress: &dyn Progress, stop: &Stop) -> Result<()> {
        let job = CarveJob {
            model: self.model.clone(),
            out: out.to_path_buf(),
            prompts: self.prompts.clone(),
            overwrite: false,
            source: "cpu".into(),
            steps: 2,
            self_contained: false,
            graph: self.graph,
        };
        job.run(progress, stop).map(drop)
    }

    fn tune(
        &self,
        spec: &PlatformSpec,
        suite: &Path,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<(Choices, Vec<Tuned>)> {
        let suite = Suite::open(suite)?;
        let model = suite_model(&suite, Some(&self.model))?;
        // What was chosen before has no say.
        let mut platform = platform::open_with_kernels(&untuned(spec), Overrides::default())?;
        let info = platform.device_info().clone();
        let mut keys = keys(&suite, &info, self.phase)?;
        prove(&suite, &model, &mut platform, &mut keys, progress, stop)?;
        drop(platform);
        let mut device = platform::open_for_plans(&platform::without_memory(spec))?;
        let (mut choices, mut report) = (Choices::new(&platform::as_it_says(spec, &info)), Vec::new());
        progress.stage("time", keys.len() as u64);
        for key in keys {
            stop.check()?;
            let call = suite.call(key.call, &model)?.0;
            let mut seconds = Vec::new();
            for plan in key.plans.iter().filter(|plan| key.passed.contains(&plan.kernel)) {
                seconds.push((plan.kernel.clone(), time::plan(device.as_mut(), plan, &call)?));
            }
            progress.advance(1);
            let tuned = key.tuned(seconds);
            if !tuned.kernel.is_empty() {
                choices.add(Choice::new(&key.op, &key.inputs, &tuned.kernel, tuned.seconds.clone()));
            }
            report.push(tuned);
        }
        Ok((choices, report))
    }
}

impl Key {
    /// What is told of it, with the fastest kernel as the chosen one.
    fn tuned(&self, seconds: Vec<(String, f64)>) -> Tuned {
        let fastest = seconds.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        Tuned {
            op: self.op.name().to_string(),
            inputs: self.inputs.iter().map(TensorType::to_string).collect(),
            nodes: self.nodes.len(),
            kernel: fastest.map(|(kernel, _)| kernel.clone()).unwrap_or_default(),
            failed: self.kernels().filter(|kernel| !self.passed.contains(kernel)).collect(),
            seconds,
        }
    }

    fn kernels(&self) -> impl Iterator<Item = String> {
        self.plans.iter().map(|plan| plan.kernel.clone())
    }
}

/// The spec without choices, kept or named.
fn untuned(spec: &PlatformSpec) -> PlatformSpec {
    let mut untuned = spec.clone();
    untuned.options.retain(|(name, _)| name != "tuning");
    untuned.options.push(("tuning".into(), "off".into()));
    untuned
}

/// Checks every kernel on all calls of its operator, and notes which pass at which types.
fn prove(
    suite: &Suite,
    model: &Model,
    platform: &mut DevicePlatform,
    keys: &mut [Key],
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<()> {
    let info = platform.device_info().clone();
    let oracles = Oracles::new(ORACLE_BYTES);
    let ops: BTreeSet<&'static str> = keys.iter().map(|key| key.op.name()).collect();
    for op in ops {
        let options = CheckOptions { ops: vec![op.into()], cases: Vec::new() };
        for kernel in kernels_of(keys, op) {
            choose(platform, &info, keys, op, &kernel)?;
            let checked = check(suite, model, platform, &oracles, &options, progress, stop)?;
            let clean = checked.report.ops.iter().all(|op| op.findings.is_empty());
            for key in keys.iter_mut().filter(|key| key.op.name() == op && key.kernels().any(|k| k == kernel))
            {
                let mut own = checked.results.iter().filter(|r| key.nodes.contains(&r.case.node)).peekable();
                if clean && own.peek().is_some() && own.all(|result| !result.failed()) {
                    key.passed.push(kernel.clone());
                }
            }
        }
    }
    Ok(())
}

/// The operators of the suite's graph, at their types, for which the device can be made to run several kernels.
fn keys(suite: &Suite, info: &DeviceInfo, phase: Phase) -> Result<Vec<Key>> {
    let mut found: Vec<(Op, Vec<TensorType>, Vec<NodeId>)> = Vec::new();
    for id in suite.cases().map(|case| case.node).collect::<BTreeSet<_>>() {
        let node = suite.graph().node(id);
        let inputs = suite.graph().input_types(node);
        match found.iter_mut().find(|(op, types, _)| *op == node.op && *types == inputs) {
            Some((.., nodes)) => nodes.push(id),
            None => found.push((node.op.clone(), inputs, vec![id])),
        }
    }
    let mut keys = Vec::new();
    for (op, inputs, nodes) in found {
        let Some(call) = timed(suite, &nodes, phase) else { continue };
        let symbols = &suite.frames()[call.frame].symbols;
        let Ok(plans) = plan_settings(&op, &inputs, kernels::Phase::of_run(symbols), info) else { continue };
        let plans = different(plans, symbols);
        if plans.len() > 1 {
            keys.push(Key { op, inputs, nodes, call, plans, passed: Vec::new() });
        }
    }
    Ok(keys)
}

/// Those that make a difference to a call with these symbols: what does not, the measurement cannot tell from the default.
fn different(plans: Vec<NodePlan>, symbols: &Symbols) -> Vec<NodePlan> {
    let rows = symbols.get(Symbol::N).unwrap_or(0);
    let mut kept: Vec<NodePlan> = Vec::new();
    for plan in plans {
        if matters(&plan.kernel, rows) && !kept.iter().any(|known| known.does_the_same(&plan)) {
            kept.push(plan);
        }
    }
    kept
}

fn kernels_of(keys: &[Key], op: &str) -> BTreeSet<String> {
    keys.iter().filter(|key| key.op.name() == op).flat_map(Key::kernels).collect()
}

/// Makes the platform run this kernel for all nodes of the operator.
fn choose(
    platform: &mut DevicePlatform,
    info: &DeviceInfo,
    keys: &[Key],
    op: &str,
    kernel: &str,
) -> Result<()> {
    let mut choices = Choices::new(info);
    for key in keys.iter().filter(|key| key.op.name() == op) {
        choices.add(Choice::new(&key.op, &key.inputs, kernel, Vec::new()));
    }
    let mut overrides = Overrides::default();
    overrides.choose(choices);
    platform.set_overrides(overrides)
}

/// The call of these nodes that stands for the phase.
fn timed(suite: &Suite, nodes: &[NodeId], phase: Phase) -> Option<Case> {
    let of_nodes = suite.cases().filter(|case| nodes.contains(&case.node) && suite.ran(*case));
    let size = |case: &Case| {
        let symbols = &suite.frames()[case.frame].symbols;
        let (n, p) = (symbols.get(Symbol::N).unwrap_or(0), symbols.get(Symbol::P).unwrap_or(0));
        match phase {
            Phase::Decode => (n, Reverse(p)),
            Phase::Prompt => (n.wrapping_neg(), Reverse(p)),
        }
    };
    of_nodes.min_by_key(size)
}

/// The choices that a device runs with: those of the file that the option `tuning` names, none if it is `off`, else those
/// that `tapml tune` kept for this device and driver.
pub(crate) fn choices(option: Option<&str>, info: &DeviceInfo) -> Result<Option<Choices>> {
    let file = match option {
        Some("off") => return Ok(None),
        Some(file) => PathBuf::from(file),
        None => match cache_file(&info.platform, &info.name, &info.driver).filter(|file| file.is_file()) {
            Some(file) => file,
            None => return Ok(None),
        },
    };
    let bytes = std::fs::metadata(&file).map_err(|e| Error::io("read", &file, &e))?.len();
    if bytes > MAX_BYTES {
        return Err(Error::invalid(format!("{} has {bytes} bytes: these are no choices", file.display())));
    }
    let text = std::fs::read_to_string(&file).map_err(|e| Error::io("read", &file, &e))?;
    let choices = match Choices::parse(&text) {
        // Kept by another release, say: as good as none, and written anew by the next `tapml tune`.
        Err(_) if option.is_none() => return Ok(None),
        parsed => parsed.map_err(|e| e.context(file.display().to_string()))?,
    };
    match option {
        Some(_) if (&choices.platform, &choices.device) != (&info.platform, &info.name) => {
            let text = format!(
                "{} was measured on {} ({}), not on {} ({})",
                file.display(),
                choices.device,
                choices.platform,
                info.name,
                info.platform
            );
            Err(Error::invalid(text)
                .with_hint("`tapml tune` measures on this device; `tuning=off` does without"))
        }
        _ => Ok(Some(choices).filter(|choices| option.is_some() || choices.fit(info))),
    }
}

/// Where the choices for a device and driver are kept, in [`crate::device::user_cache`]; `None` if there is none.
pub fn cache_file(platform: &str, device: &str, driver: &str) -> Option<PathBuf> {
    let name = format!("{platform}-{device}-{driver}");
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' };
    let name: String = name.chars().map(safe).take(200).collect();
    Some(crate::device::user_cache()?.join("tuning").join(name + ".json"))
}
