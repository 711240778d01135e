//! Where a model's values first depart from those of another implementation: a golden file with hidden states and logits,
//! or a suite with what the modules of a PyTorch model took and gave.
//!
//! The tolerance is a share of the range of the expected values, so that one number serves embeddings and
//! logits. NaN counts as a departure.

mod golden;
mod modules;
mod values;

pub use values::AlignRow;

use crate::job::open_platform;
use crate::model::{GraphOptions, expect_context, teacher_forced};
use golden::Golden;
use modules::Modules;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Instant;
use tapml_exec::Platform;
use tapml_graph::{Error, Graph, Model, Origin, Result};
use tapml_import::{Checkpoint, LogitRows};
use tapml_migrate::{Progress, Stop};
use values::Values;

/// What a value is compared with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// For prompt `i`: `p{i}.input_ids` [T], `p{i}.hidden.0` to `p{i}.hidden.L` and `p{i}.logits`, of all positions, of
    /// those in `p{i}.positions`, or of the last ones.
    Golden(PathBuf),
    /// For prompt `i`: `p{i}.input_ids` [T], and by the names of modules `p{i}.in.MODULE` and `p{i}.out.MODULE` [T, …],
    /// `p{i}.out.MODULE:1` for a second result, and `p{i}.logits`.
    Suite(PathBuf),
}

/// Compares a model with another implementation. Operators are not fused, so that the nodes between two values are
/// those of the checkpoint.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlignJob {
    /// Checkpoint folder.
    pub model: PathBuf,
    /// The other implementation's values.
    pub reference: Reference,
    /// Where to run.
    #[serde(default = "cpu")]
    pub target: String,
    /// A value departs if it differs by more than this share of the range of the other's values.
    #[serde(default = "tolerance")]
    pub tolerance: f64,
}

fn cpu() -> String {
    "cpu".into()
}

fn tolerance() -> f64 {
    1e-4
}

/// A node of the graph.
#[derive(Clone, Debug, Serialize)]
pub struct NodeName {
    /// Its name.
    pub node: String,
    /// Its operator.
    pub op: &'static str,
}

/// The first value that departs.
#[derive(Clone, Debug, Serialize)]
pub struct Departure {
    /// The value.
    #[serde(flatten)]
    pub row: AlignRow,
    /// What computes it from the value before, which still agrees.
    pub nodes: Vec<NodeName>,
}

/// What the comparison found.
#[derive(Clone, Debug, Serialize)]
pub struct AlignReport {
    /// Version of the fields.
    pub schema: u32,
    /// The checkpoint.
    pub model: String,
    /// The golden file or the suite.
    pub golden: String,
    /// The platform word.
    pub target: String,
    /// Number of prompts.
    pub prompts: usize,
    /// See [`AlignJob::tolerance`].
    pub tolerance: f64,
    /// In the order of computation.
    pub values: Vec<AlignRow>,
    /// The first value that departs, if one does.
    pub departs: Option<Departure>,
    /// What the file holds and the graph has no value for, by name; such places are not compared.
    pub unmatched: Vec<String>,
    /// Wall-clock time.
    pub seconds: f64,
}

impl AlignJob {
    /// Compares.
    pub fn run(&self, progress: &dyn Progress, stop: &Stop) -> Result<AlignReport> {
        let start = Instant::now();
        let graph = GraphOptions { fuse: false, ..GraphOptions::default() };
        let (checkpoint, model) = graph.open(&self.model, LogitRows::All)?;
        let values: Box<dyn Values> = match &self.reference {
            Reference::Golden(path) => Box::new(Golden::open(path, &checkpoint)?),
            Reference::Suite(path) => Box::new(Modules::open(path, model.graph())?),
        };
        let mut platform = open_platform(&self.target, &[])?;
        let mut rows: Vec<AlignRow> = Vec::new();
        progress.stage("comparing prompts", values.prompts() as u64);
        for prompt in 0..values.prompts() {
            stop.check()?;
            merge(&mut rows, compare(values.as_ref(), prompt, &checkpoint, &model, platform.as_mut())?);
            progress.advance(1);
        }
        if rows.is_empty() {
            let text = format!("{}: {}", values.path().display(), values.lacks());
            return Err(Error::invalid(text).with_hint("`tapml align --help` says what such a file holds"));
        }
        // The file's order is its writer's; the first departure is that in the order of computation.
        rows.sort_by_key(|row| place(model.graph(), &row.value).unwrap_or(usize::MAX));
        Ok(AlignReport {
            schema: 1,
            model: self.model.display().to_string(),
            golden: values.path().display().to_string(),
            target: self.target.clone(),
            prompts: values.prompts(),
            tolerance: self.tolerance,
            departs: departure(model.graph(), &rows, self.tolerance),
            unmatched: values.unmatched_values(&rows),
            values: rows,
            seconds: start.elapsed().as_secs_f64(),
        })
    }
}

fn compare(
    values: &dyn Values,
    prompt: usize,
    checkpoint: &Checkpoint,
    model: &Model,
    platform: &mut dyn Platform,
) -> Result<Vec<AlignRow>> {
    let (ids, image) = values.prompt(prompt, checkpoint)?;
    expect_context(ids.len(), 0, checkpoint.context())?;
    let wanted = values.wanted_values();
    let more = wanted.iter().map(|(output, value)| (output.as_str(), value.as_str()));
    let found = teacher_forced(model, (&ids, image.as_ref()), platform, more)?;
    values.compare(prompt, ids.len(), &found)
}

/// Keeps the worse of each pair of rows.
fn merge(rows: &mut Vec<AlignRow>, more: Vec<AlignRow>) {
    for row in more {
        match rows.iter_mut().find(|old| old.name == row.name) {
            // NaN is worse than every number, which no comparison says.
            Some(old) if row.worst.is_nan() || row.worst > old.worst => *old = row,
            Some(_) => {}
            None => rows.push(row),
        }
    }
}

/// The first row beyond the tolerance, and the nodes since the row before it.
fn departure(graph: &Graph, rows: &[AlignRow], tolerance: f64) -> Option<Departure> {
    let first = rows.iter().position(|row| row.worst.is_nan() || row.worst > tolerance)?;
    // What comes before a value that agrees is not at fault.
    let from = first.checked_sub(1).and_then(|i| place(graph, &rows[i].value)).map_or(0, |i| i + 1);
    let to = place(graph, &rows[first].value).map_or(from, |i| i + 1);
    let nodes = graph.nodes().get(from..to).unwrap_or_default();
    let nodes = nodes.iter().map(|n| NodeName { node: n.name.clone(), op: n.op.name() }).collect();
    Some(Departure { row: rows[first].clone(), nodes })
}

/// The number of the node that gives a value or an output of this name.
fn place(graph: &Graph, name: &str) -> Option<usize> {
    let output = graph.outputs().iter().find(|o| o.name == name).map(|o| o.value);
    match graph.value(output.or_else(|| graph.find_value(name))?).origin {
        Origin::Node { node, .. } => Some(node.0 as usize),
        _ => None,
    }
}
