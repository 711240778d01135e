//! ONNX models as jobs take them: arrays for their inputs, and the run on a source that makes them graphs.

use crate::exec::Platform;
use crate::graph::op::{Declared, Foreign};
use crate::graph::{Context, Tensor};
use crate::import::npy;
use crate::import::onnx::{File, Runner, Traced};
use crate::migrate::{Progress, RecordedRun, Stop, identity_of_file, record, tensor_type};
use crate::reference::foreign::Evaluator;
use crate::{Error, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where the inputs of a model's runs are.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Inputs {
    /// `NAME=FILE` for each input of one run; `FILE` is a `.npy` array.
    pub files: Vec<String>,
    /// A folder with `NAME.npy` for each input of one run, or with a folder of these for each of several.
    pub folder: Option<PathBuf>,
}

/// The inputs of one run, by name, and what they are called.
pub struct InputSet {
    /// The name of a file or a folder.
    pub label: String,
    /// Arrays by the names of inputs.
    pub arrays: HashMap<String, Tensor>,
}

impl Inputs {
    /// Whether nothing is given.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.folder.is_none()
    }

    /// Reads the arrays.
    pub fn read(&self) -> Result<Vec<InputSet>> {
        let mut sets = Vec::new();
        if !self.files.is_empty() {
            let mut arrays = HashMap::new();
            for given in &self.files {
                let (name, file) = given.split_once('=').ok_or_else(|| {
                    Error::invalid(format!("`--input {given}`: expected NAME=FILE"))
                        .with_hint("for example `--input image=photo.npy`; `tapml inspect` tells the names")
                })?;
                if arrays.insert(name.to_string(), npy::read(Path::new(file))?).is_some() {
                    return Err(Error::invalid(format!("input `{name}` is given twice")));
                }
            }
            let first = self.files[0].split_once('=').map_or("", |(_, file)| file);
            sets.push(InputSet { label: name_of(Path::new(first)), arrays });
        }
        if let Some(folder) = &self.folder {
            sets.extend(read_folder(folder)?);
        }
        match sets.is_empty() {
            true => Err(Error::invalid("no inputs given")
                .with_hint("--input NAME=FILE.npy for each input of the model, or --inputs DIR")),
            false => Ok(sets),
        }
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The entries of a folder, by name.
fn entries(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let read = std::fs::read_dir(folder).map_err(|e| Error::io("read", folder, &e))?;
    let entry = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.map_err(|e| Error::io("read", folder, &e))?.path();
        Ok((name_of(&path), path))
    };
    read.map(entry).collect()
}

fn read_folder(folder: &Path) -> Result<Vec<InputSet>> {
    let entries = entries(folder)?;
    let arrays = |label: String, entries: &BTreeMap<String, PathBuf>| {
        let npy = entries.iter().filter_map(|(name, path)| Some((name.strip_suffix(".npy")?, path)));
        let arrays = npy.map(|(name, path)| Ok((name.to_string(), npy::read(path)?)));
        Ok(InputSet { label, arrays: arrays.collect::<Result<_>>()? })
    };
    if entries.keys().any(|name| name.ends_with(".npy")) {
        return Ok(vec![arrays(name_of(folder), &entries)?]);
    }
    let folders = entries.iter().filter(|(_, path)| path.is_dir());
    let sets = folders.map(|(name, path)| arrays(name.clone(), &self::entries(path)?));
    let sets: Vec<InputSet> = sets.collect::<Result<_>>()?;
    match sets.iter().find(|set| set.arrays.is_empty()) {
        Some(empty) => Err(Error::invalid(format!("{}/{} holds no `.npy`", folder.display(), empty.label))),
        None if sets.is_empty() => Err(Error::invalid(format!(
            "{} holds neither `.npy` files nor folders of them",
            folder.display()
        ))),
        None => Ok(sets),
    }
}

/// Runs nodes on the source.
struct OnSource<'a> {
    source: &'a mut dyn Platform,
    progress: &'a dyn Progress,
    stop: &'a Stop,
}

impl Runner for OnSource<'_> {
    fn run(&mut self, node: &str, op: &Foreign, inputs: &[(Tensor, bool)]) -> Result<Vec<Tensor>> {
        self.stop.check()?;
        let gave = self.source.discover(node, op, inputs);
        self.progress.advance(1);
        gave
    }
}

/// A platform that evaluates operators of others in `f64`.
pub struct PlatformEvaluator(Mutex<Box<dyn Platform>>);

impl PlatformEvaluator {
    /// Of this platform, such as `reference`.
    pub fn new(platform: Box<dyn Platform>) -> PlatformEvaluator {
        PlatformEvaluator(Mutex::new(platform))
    }
}

impl Evaluator for PlatformEvaluator {
    fn evaluate(&self, op: &Foreign, inputs: &[Tensor], constants: &[bool]) -> Result<Vec<Tensor>> {
        let inputs: Vec<(Tensor, bool)> =
            inputs.iter().zip(constants).map(|(tensor, &constant)| (tensor.clone(), constant)).collect();
        let mut platform = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let outputs = platform.discover("oracle", op, &inputs)?;
        let declared = op.outputs().iter().filter_map(Declared::ty);
        for (ty, output) in declared.zip(&outputs) {
            let found = tensor_type(output);
            if found != *ty {
                return Err(Error::invalid(format!("the oracle gives {found}, expected {ty}")));
            }
        }
        Ok(outputs)
    }
}

/// A model that was run on a source with each set of inputs: one graph, and the values of each run.
pub struct TracedModel {
    /// The run with the first set.
    pub first: Traced,
    /// What each set is called.
    pub labels: Vec<String>,
    /// Values of the runs after the first.
    pub more: Vec<Vec<Tensor>>,
}

impl TracedModel {
    /// Runs a model.
    ///
    /// # Errors
    /// Two sets give two graphs: their sizes differ, or another branch was taken.
    pub fn of(
        path: &Path,
        inputs: &Inputs,
        source: &mut dyn Platform,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<TracedModel> {
        let file = File::open(path)?;
        let sets = inputs.read()?;
        let nodes = file.outline().nodes as u64;
        progress.stage("carve", nodes.saturating_mul(sets.len() as u64));
        let mut traced: Option<TracedModel> = None;
        for set in sets {
            let mut runner = OnSource { source, progress, stop };
            let run = file.trace(&set.arrays, &mut runner);
            let run =
                run.context(|| path.display().to_string()).context(|| format!("inputs `{}`", set.label))?;
            let Some(known) = &mut traced else {
                traced = Some(TracedModel { first: run, labels: vec![set.label], more: Vec::new() });
                continue;
            };
            if run.model.graph() != known.first.model.graph() {
                let (own, first) = (&set.label, &known.labels[0]);
                let text = format!(
                    "inputs `{own}` give another graph than `{first}`: other sizes, or another branch"
                );
                return Err(Error::invalid(text).with_hint("carve a suite for each"));
            }
            known.labels.push(set.label);
            known.more.push(run.values);
        }
        traced.ok_or_else(|| Error::invalid("no inputs given"))
    }

    /// The values of each run, in the order of the graph's values.
    pub fn runs(&self) -> impl Iterator<Item = &Vec<Tensor>> {
        std::iter::once(&self.first.values).chain(&self.more)
    }

    /// Writes the suite of these runs.
    pub fn write(
        &self,
        path: &Path,
        source: &dyn Platform,
        out: (&Path, bool),
    ) -> Result<crate::migrate::suite::Manifest> {
        let runs: Vec<RecordedRun<'_>> = (self.labels.iter().zip(self.runs()))
            .map(|(label, values)| RecordedRun { label: label.clone(), values })
            .collect();
        let model = &self.first.model;
        record(out, model, identity_of_file(path, model), source.describe(), &runs)
    }
}
