//! Suites of models that are run once for each set of inputs: the values of the runs are there when the suite is written.
//!
//! Such models have no prompts and no states: each run is a prompt of its own, without tokens.

use crate::hash::Hash;
use crate::identity::ModelIdentity;
use crate::suite::{Frame, Manifest, Prompt, Settings, Slot, SuiteSource, SuiteWriter};
use std::path::Path;
use tapml_exec::PlatformInfo;
use tapml_graph::{Error, Model, Origin, Result, Symbols, Tensor, ValueId};

/// One run of a graph.
pub struct RecordedRun<'a> {
    /// What its inputs are called, such as a file's name.
    pub label: String,
    /// The value of every value of the graph, by its id.
    pub values: &'a [Tensor],
}

/// Writes a suite of these runs, the weights within it. Nothing is left at `out` unless all of it is.
///
/// # Errors
/// A run has not one value for every value of the graph, of its type.
pub fn record(
    (out, overwrite): (&Path, bool),
    model: &Model,
    identity: ModelIdentity,
    source: PlatformInfo,
    runs: &[RecordedRun<'_>],
) -> Result<Manifest> {
    let graph = model.graph();
    let source = SuiteSource { platform: source.platform, device: source.device, driver: source.driver };
    // A file may be moved away; the suite must replay without it.
    let settings = Settings { steps: 0, self_contained: true };
    let mut writer = SuiteWriter::create(out, overwrite, model, identity, source, settings)?;
    let mut prompts = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        if run.values.len() != graph.values().len() {
            let (have, want) = (run.values.len(), graph.values().len());
            return Err(Error::bug(format!("a run has {have} values, the graph {want}")));
        }
        let mut values = vec![Slot::None; run.values.len()];
        for (id, tensor) in run.values.iter().enumerate() {
            let value = graph.value(ValueId(id as u32));
            let found = crate::hash::tensor_type(tensor);
            if found != value.ty {
                let text = format!("`{}` is {}, and in the run {found}", value.name, value.ty);
                return Err(Error::invalid(text).context(run.label.clone()));
            }
            // Weights are there by name already.
            if value.origin != Origin::Weight {
                values[id] = Slot::Stored(writer.put(tensor)?);
            }
        }
        let prompt = u32::try_from(at).map_err(|_| Error::unsupported("more than 2^32 runs"))?;
        let (symbols, states) = (Symbols::np(0, 0), Vec::new());
        writer.frame(&Frame { prompt, step: 0, symbols, states, values })?;
        prompts.push(Prompt { text: run.label.clone(), ..Prompt::default() });
    }
    writer.finish(prompts)
}

/// Who a model of one file is: its name, where it lies, and the hash of its graph in the place of a configuration.
pub fn identity_of_file(path: &Path, model: &Model) -> ModelIdentity {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    ModelIdentity {
        name: path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        path: path.display().to_string(),
        config: Hash::compute(model.graph().to_string().as_bytes()).to_string(),
        ..ModelIdentity::default()
    }
}
