//! Suites of one failing call each, in a folder that is bounded in suites and bytes.
//!
//! The suite's graph is the node alone, as it ran: a fused operator is one, and pools are those parts that the call names. Its
//! inputs are what the target had, its outputs what the source gives for them. Weights are named, as in any suite.

use super::queue::RecordedCall;
use crate::identity::{ModelIdentity, weight_entries};
use crate::suite::{Frame, Prompt, Settings, Slot, SuiteOutput, SuiteSource, SuiteWriter};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use tapml_exec::PlatformInfo;
use tapml_graph::{Error, Model, NodeId, Origin, Result, Tensor, ValueId};

/// Most suites in the folder.
const MOST_CASES: usize = 64;
/// Most bytes of the folder.
const MOST_BYTES: u64 = 1 << 30;
/// Most suites of one kernel: further ones say nothing new.
const MOST_OF_KERNEL: usize = 4;

/// See the module.
pub(super) struct CaseFolder {
    folder: PathBuf,
    model: Model,
    identity: ModelIdentity,
    source: SuiteSource,
    /// Suites that were left, by kernel.
    left: HashMap<String, usize>,
}

/// What a failing call left.
pub(super) enum Left {
    /// A suite.
    Case(PathBuf),
    /// Nothing, and why.
    Nothing(String),
}

impl CaseFolder {
    /// A folder that is made when the first call fails.
    pub fn new(folder: PathBuf, model: Model, identity: ModelIdentity, source: PlatformInfo) -> CaseFolder {
        let PlatformInfo { platform, device, driver } = source;
        let source = SuiteSource { platform, device, driver };
        CaseFolder { folder, model, identity, source, left: HashMap::new() }
    }

    /// Leaves a suite of the call, unless there are enough.
    pub fn write(&mut self, recorded: &RecordedCall, expected: &[Tensor], kernel: &str) -> Result<Left> {
        if self.left.get(kernel).is_some_and(|left| *left >= MOST_OF_KERNEL) {
            return Ok(Left::Nothing(format!("{kernel} has left {MOST_OF_KERNEL}")));
        }
        fs::create_dir_all(&self.folder).map_err(|e| Error::io("create", &self.folder, &e))?;
        let (cases, bytes) = measure(&self.folder)?;
        let (shown, most) = (self.folder.display(), MOST_BYTES >> 20);
        if cases >= MOST_CASES || bytes.saturating_add(recorded.bytes) > MOST_BYTES {
            let text =
                format!("{shown} holds {cases} of {MOST_CASES} cases and {} of {most} MiB", bytes >> 20);
            return Ok(Left::Nothing(text));
        }
        let path = self.free_name(recorded.call.op.name());
        self.suite(&path, recorded, expected)?;
        *self.left.entry(kernel.to_string()).or_default() += 1;
        Ok(Left::Case(path))
    }

    /// A name that no suite has.
    fn free_name(&self, op: &str) -> PathBuf {
        let safe: String = op.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let name = |number: usize| self.folder.join(format!("{safe}-{number}.suite"));
        // There are at most so many, so that one of the names is free.
        (1..=MOST_CASES).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(MOST_CASES + 1))
    }

    /// Writes the suite.
    fn suite(&self, path: &Path, recorded: &RecordedCall, expected: &[Tensor]) -> Result<()> {
        let graph = &recorded.graph;
        let model = self.model.with_graph(graph.clone())?;
        let weights = weight_entries(&model)?;
        let (identity, source) = (self.identity.clone(), self.source.clone());
        let file = |file| -> Box<dyn SuiteOutput> { Box::new(file) };
        let mut writer =
            SuiteWriter::begin(path, false, &model, identity, source, Settings::default(), &file)?;
        writer.expect_bytes(recorded.bytes);
        writer.identify(&model, weights)?;
        let node = graph.node(NodeId(0));
        let mut values = vec![Slot::None; graph.values().len()];
        let mut states = vec![Slot::None; graph.states().len()];
        for (&id, tensor) in node.inputs.iter().zip(&recorded.call.inputs) {
            match graph.value(id).origin {
                Origin::Weight => {}
                Origin::State(at) => states[at as usize] = Slot::Stored(writer.put(tensor)?),
                Origin::Input | Origin::Node { .. } => {
                    values[id.0 as usize] = Slot::Stored(writer.put(tensor)?)
                }
            }
        }
        let outputs: Vec<(&ValueId, &Tensor)> = node.outputs.iter().zip(expected).collect();
        for (id, tensor) in outputs {
            values[id.0 as usize] = Slot::Stored(writer.put(tensor)?);
        }
        let symbols = recorded.call.symbols.clone();
        writer.frame(&Frame { prompt: 0, step: 0, symbols, states, values })?;
        writer.limit_cases(vec![format!("p0.s0.{}", node.name)]);
        writer.finish(vec![Prompt::default()])?;
        Ok(())
    }
}

/// Suites in a folder, and the bytes of their files.
fn measure(folder: &Path) -> Result<(usize, u64)> {
    let failed = |e: std::io::Error| Error::io("read", folder, &e);
    let (mut cases, mut bytes) = (0, 0u64);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        // What is no folder was put there by somebody else.
        let Ok(files) = fs::read_dir(&path) else { continue };
        cases += 1;
        let sizes = files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len()));
        bytes = sizes.fold(bytes, u64::saturating_add);
    }
    Ok((cases, bytes))
}
