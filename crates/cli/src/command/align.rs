//! `tapml align`: where a model's values first depart from those of another implementation.
//!
//! A golden holds hidden states and logits of another implementation; a suite of a PyTorch module holds what its
//! modules took and gave. Either is compared value by value, in the order of the graph.

use crate::Outcome;
use crate::output::{JsonArg, table};
use crate::progress::Bar;
use crate::stopping;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use tapml::Error;
use tapml::align::{AlignJob, AlignReport, Departure, Reference};

/// Compare hidden states and logits with a golden file; name the first value that departs.
///
/// The golden holds, for prompt i, `p{i}.input_ids` [T], `p{i}.hidden.0` to `p{i}.hidden.L` and `p{i}.logits`, of all
/// positions, of those in `p{i}.positions`, or of the last ones. A suite, which `tapml.torch.carve` of the Python package
/// writes, holds what the modules of a PyTorch model took and gave: `p{i}.in.MODULE` and `p{i}.out.MODULE`. Operators are not fused, so that the nodes between two
/// hidden states are those of the checkpoint.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tapml align models/llama --golden tests/goldens/llama/golden.safetensors\n  \
                  tapml align models/llama --suite llama.torch.safetensors"
)]
pub struct AlignCommand {
    /// Folder in Hugging Face layout
    model: PathBuf,
    /// The other implementation's values, as safetensors
    #[arg(long, value_name = "FILE", required_unless_present = "suite")]
    golden: Option<PathBuf>,
    /// What the modules of a PyTorch model took and gave, written by `tapml.torch.carve`
    #[arg(long, value_name = "FILE", conflicts_with = "golden")]
    suite: Option<PathBuf>,
    /// Where to run
    #[arg(long, value_name = "PLATFORM", default_value = "cpu")]
    target: String,
    /// A value departs if it differs by more than this share of the range of the golden's values
    #[arg(long, value_name = "SHARE", default_value_t = 1e-4, value_parser = parse_share)]
    tolerance: f64,
    #[command(flatten)]
    json: JsonArg,
}

impl AlignCommand {
    /// Runs the model on every prompt and names the first value that departs.
    ///
    /// # Errors
    /// If the model or the reference cannot be read, or the target does not run it.
    pub fn run(self) -> Result<Outcome> {
        let reference = match (self.golden, self.suite) {
            (Some(golden), _) => Reference::Golden(golden),
            (None, Some(suite)) => Reference::Suite(suite),
            // `clap` demands one of both.
            (None, None) => return Err(Error::invalid("give --golden or --suite").into()),
        };
        let job = AlignJob { model: self.model, reference, target: self.target, tolerance: self.tolerance };
        let bar = Bar::new();
        let report = job.run(&bar, &stopping::stop_on_signal()?);
        bar.finish();
        let report = report?;
        self.json.say(&render(&report))?;
        self.json.write(&report)?;
        Ok(if report.departs.is_none() { Outcome::Holds } else { Outcome::Fails })
    }
}

/// A share from the command line.
///
/// # Errors
/// For anything but a number from 0 to 1.
fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("`{text}` is no share; expected a number from 0 to 1, such as 1e-4"))
}

/// A table of all values, then what departs and the nodes that computed it.
fn render(report: &AlignReport) -> String {
    let mut rows = table(&["REFERENCE", "VALUE", "WORST", "PROMPT", "POSITION", "COLUMN"]);
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
    let unmatched = match report.unmatched.as_slice() {
        [] => String::new(),
        some => {
            // The report has all names.
            let first = some.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if some.len() > 5 { ", …" } else { "" };
            format!("\nnot compared, for the graph has no such value: {} ({first}{more})", some.len())
        }
    };
    format!("{rows}\n{verdict}{unmatched}")
}
