//! `tapml align`: where a model's values first depart from those of another implementation.

use super::common::{self, GraphArgs};
use crate::Outcome;
use crate::output::{JsonArg, table};
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;
use tapml::Error;
use tapml::engine::{Pixels, Vision};
use tapml::exec::Image;
use tapml::graph::{Graph, Origin, Tensor};
use tapml::import::safetensors::File;
use tapml::import::{Checkpoint, Rows};

/// Compare hidden states and logits with a golden file; name the first value that departs.
///
/// The golden holds, for prompt i, `p{i}.input_ids` [T], `p{i}.hidden.0` to `p{i}.hidden.L` and `p{i}.logits`, of all
/// positions, of those in `p{i}.positions`, or of the last ones. Operators are not fused, so that the nodes between two
/// hidden states are those of the checkpoint.
#[derive(Args)]
#[command(
    after_help = "Example:\n  tapml align models/llama --golden tests/goldens/llama/golden.safetensors"
)]
pub struct AlignCommand {
    /// Folder in Hugging Face layout
    model: PathBuf,
    /// The other implementation's values, as safetensors
    #[arg(long, value_name = "FILE")]
    golden: PathBuf,
    /// Where to run
    #[arg(long, value_name = "PLATFORM", default_value = "cpu")]
    target: String,
    /// A value departs if it differs by more than this share of the range of the golden's values
    #[arg(long, value_name = "SHARE", default_value_t = 1e-4, value_parser = parse_share)]
    tolerance: f64,
    #[command(flatten)]
    json: JsonArg,
}

/// The worst difference of one value over all prompts.
#[derive(Serialize, Clone)]
struct Row {
    /// Name in the golden.
    name: String,
    /// Name in the graph.
    value: String,
    /// Largest difference as a share of the range.
    worst: f64,
    prompt: usize,
    position: usize,
    column: usize,
}

#[derive(Serialize)]
struct Node {
    node: String,
    op: &'static str,
}

#[derive(Serialize)]
struct Departure {
    #[serde(flatten)]
    row: Row,
    /// What computes it from the value before, which still agrees.
    nodes: Vec<Node>,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    model: String,
    golden: String,
    target: String,
    prompts: usize,
    tolerance: f64,
    values: Vec<Row>,
    departs: Option<Departure>,
    seconds: f64,
}

impl AlignCommand {
    pub fn run(self) -> Result<Outcome> {
        let start = Instant::now();
        let graph = GraphArgs { no_fuse: true, ..GraphArgs::default() };
        let (checkpoint, model) = graph.open(&self.model, Rows::All)?;
        let golden = Golden::open(&self.golden)?;
        let mut values: Vec<Row> = Vec::new();
        for prompt in 0..golden.prompts {
            let (ids, image) = golden.prompt(prompt, &checkpoint)?;
            common::expect_context(ids.len(), 0, checkpoint.context())?;
            let whole = (ids.as_slice(), image.as_ref());
            let found = common::teacher_forced(&checkpoint, &model, whole, &self.target, true)?;
            merge(&mut values, golden.compare(prompt, ids.len(), &found, &names(&checkpoint))?);
        }
        if values.is_empty() {
            let text = format!("{}: there is neither `p0.logits` nor a hidden state", self.golden.display());
            return Err(Error::invalid(text)
                .with_hint("`tapml align --help` says what a golden holds")
                .into());
        }
        let first = values.iter().position(|row| row.worst.is_nan() || row.worst > self.tolerance);
        let departs = first.map(|index| Departure {
            row: values[index].clone(),
            nodes: between(
                model.graph(),
                index.checked_sub(1).map(|i| &values[i].value),
                &values[index].value,
            ),
        });
        let report = Report {
            schema: 1,
            model: self.model.display().to_string(),
            golden: self.golden.display().to_string(),
            target: self.target.clone(),
            prompts: golden.prompts,
            tolerance: self.tolerance,
            values,
            departs,
            seconds: start.elapsed().as_secs_f64(),
        };
        self.json.say(&render(&report))?;
        self.json.write(&report)?;
        Ok(if report.departs.is_none() { Outcome::Holds } else { Outcome::Fails })
    }
}

/// A share from the command line.
fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("`{text}` is no share; expected a number from 0 to 1, such as 1e-4"))
}

/// Pairs of a name in the golden and a name in the graph, in the order of computation.
fn names(checkpoint: &Checkpoint) -> Vec<(String, String)> {
    let hidden = checkpoint.hidden_values().into_iter().enumerate();
    let mut names: Vec<(String, String)> =
        hidden.map(|(index, value)| (format!("hidden.{index}"), value)).collect();
    names.push(("logits".into(), "logits".into()));
    names
}

/// Keeps the worse of each pair of rows.
fn merge(values: &mut Vec<Row>, rows: Vec<Row>) {
    for row in rows {
        match values.iter_mut().find(|old| old.name == row.name) {
            Some(old) if row.worst.is_nan() || row.worst > old.worst => *old = row,
            Some(_) => {}
            None => values.push(row),
        }
    }
}

/// The nodes after the one that gives `before` up to the one that gives `after`.
fn between(graph: &Graph, before: Option<&String>, after: &str) -> Vec<Node> {
    let index = |name: &str| {
        let output = graph.outputs().iter().find(|o| o.name == name).map(|o| o.value);
        match graph.value(output.or_else(|| graph.find_value(name))?).origin {
            Origin::Node { node, .. } => Some(node.0 as usize),
            _ => None,
        }
    };
    let first = before.and_then(|name| index(name)).map_or(0, |i| i + 1);
    let last = index(after).map_or(first, |i| i + 1);
    let nodes = graph.nodes().get(first..last).unwrap_or_default();
    nodes.iter().map(|n| Node { node: n.name.clone(), op: n.op.name() }).collect()
}

/// A golden file.
struct Golden {
    file: File,
    path: PathBuf,
    prompts: usize,
}

impl Golden {
    fn open(path: &std::path::Path) -> Result<Golden> {
        let file = File::open(path)?;
        let has = |i: usize| file.entries().iter().any(|e| e.name == format!("p{i}.input_ids"));
        let prompts = (0..).take_while(|&i| has(i)).count();
        if prompts == 0 {
            return Err(Error::invalid(format!("{}: there is no tensor `p0.input_ids`", path.display()))
                .with_hint("tools/goldens makes such files; `tapml align --help` says what they hold")
                .into());
        }
        Ok(Golden { file, path: path.to_path_buf(), prompts })
    }

    fn find(&self, prompt: usize, name: &str) -> Result<Option<Tensor>> {
        let name = format!("p{prompt}.{name}");
        match self.file.entries().iter().any(|e| e.name == name) {
            true => Ok(Some(self.file.tensor(&name)?)),
            false => Ok(None),
        }
    }

    /// Token ids, and the image that some of them stand for.
    fn prompt(&self, prompt: usize, checkpoint: &Checkpoint) -> Result<(Vec<u32>, Option<Image>)> {
        let ids = self.find(prompt, "input_ids")?.map(|t| t.to_f64()).unwrap_or_default();
        let ids: Vec<u32> = ids.into_iter().map(|id| id as u32).collect();
        match Vision::open(checkpoint)? {
            Some(vision) if checkpoint.image().is_some_and(|image| ids.contains(&image.id)) => {
                let (ids, image) = vision.place(&ids, self.pixels()?)?;
                Ok((ids, Some(image)))
            }
            _ => Ok((ids, None)),
        }
    }

    /// The image, and in which parts it is cut if it is.
    fn pixels(&self) -> Result<Pixels> {
        let parts = match self.file.tensor("parts") {
            Err(_) => [1, 1],
            Ok(parts) => match *parts.to_f64() {
                [down, across] => [down, across].map(|count| count as u32),
                _ => return Err(Error::invalid("`parts` of the golden must hold two numbers").into()),
            },
        };
        Ok(Pixels { values: self.file.tensor("pixels")?, parts })
    }

    /// Positions of the rows of a tensor.
    fn positions(&self, prompt: usize, rows: usize, length: usize) -> Result<Vec<usize>> {
        let listed = self.find(prompt, "positions")?.map(|t| t.to_f64()).unwrap_or_default();
        let listed: Vec<usize> = listed.into_iter().map(|p| p as usize).collect();
        if rows == listed.len() && listed.iter().all(|&p| p < length) {
            return Ok(listed);
        }
        match rows <= length {
            true => Ok((length - rows..length).collect()),
            false => Err(Error::invalid(format!(
                "{}: prompt {prompt} has {length} tokens, but values of {rows} positions",
                self.path.display()
            ))
            .into()),
        }
    }

    fn compare(
        &self,
        prompt: usize,
        length: usize,
        found: &BTreeMap<String, Tensor>,
        names: &[(String, String)],
    ) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (name, value) in names {
            let (Some(expected), Some(found)) = (self.find(prompt, name)?, found.get(name)) else { continue };
            if expected.row_len() != found.row_len() {
                let (want, have) = (expected.row_len(), found.row_len());
                return Err(Error::invalid(format!(
                    "{}: `p{prompt}.{name}` has {want} columns, the model's has {have}",
                    self.path.display()
                ))
                .with_hint("the golden belongs to another model")
                .into());
            }
            let positions = self.positions(prompt, expected.shape().first().copied().unwrap_or(0), length)?;
            let (worst, row, column) = worst(&expected, found, &positions);
            let position = positions.get(row).copied().unwrap_or(0);
            rows.push(Row { name: name.clone(), value: value.clone(), worst, prompt, position, column });
        }
        Ok(rows)
    }
}

/// The largest difference as a share of the range of what is expected, and its row and column.
fn worst(expected: &Tensor, found: &Tensor, positions: &[usize]) -> (f64, usize, usize) {
    let (columns, values, found) = (expected.row_len().max(1), expected.to_f64(), found.to_f64());
    let (low, high) =
        values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), &v| (a.min(v), b.max(v)));
    let range = (high - low).max(f64::MIN_POSITIVE);
    let mut worst = (0.0, 0, 0);
    for (index, &value) in values.iter().enumerate() {
        let (row, column) = (index / columns, index % columns);
        let other = positions.get(row).and_then(|p| found.get(p * columns + column));
        let difference = other.map_or(f64::NAN, |other| (other - value).abs() / range);
        if difference.is_nan() {
            return (difference, row, column);
        }
        if difference > worst.0 {
            worst = (difference, row, column);
        }
    }
    worst
}

fn render(report: &Report) -> String {
    let mut rows = table(&["GOLDEN", "VALUE", "WORST", "PROMPT", "POSITION", "COLUMN"]);
    for row in &report.values {
        rows.add_row([
            row.name.clone(),
            row.value.clone(),
            format!("{:.1e}", row.worst),
            row.prompt.to_string(),
            row.position.to_string(),
            row.column.to_string(),
        ]);
    }
    let verdict = match &report.departs {
        None => format!(
            "every value agrees within {:.0e} of its range over {} prompts",
            report.tolerance, report.prompts
        ),
        Some(Departure { row, nodes }) => {
            let list: Vec<String> = nodes.iter().map(|n| format!("  {} = {}", n.node, n.op)).collect();
            format!(
                "`{}` is the first value that departs: by {:.1e} of its range at prompt {}, position {}, column {}\n\
                 computed, from what still agrees, by\n{}",
                row.value,
                row.worst,
                row.prompt,
                row.position,
                row.column,
                list.join("\n")
            )
        }
    };
    format!("{rows}\n{verdict}")
}
