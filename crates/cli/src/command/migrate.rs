//! `tapml migrate`: move a model to a target, one operator kind at a time.
//!
//! The work is a job of the library, which keeps a ledger. This file prints its report: what moved, what did not, and
//! why.

use super::check::{details, regimes};
use super::common::{self, GraphArgs, InputArgs, TargetArgs};
use crate::Outcome;
use crate::output::{self, JsonArg, table};
use crate::progress::Bar;
use crate::stopping;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use tapml::jobs::MigrateJob;
use tapml::migrate::html;
use tapml::migrate::ledger::OpState;
use tapml::migrate::report::{MigrateReport, OpReport, Outcome as Verdict};
use tapml::prompts::Prompts;

/// Characters of a prompt that the table shows.
const PROMPT: usize = 120;

/// Carve a model on the source, then move it to the target operator by operator, checking each step.
#[derive(Args)]
#[command(after_help = "Example:\n  tapml migrate models/llama --target vulkan --html report.html")]
pub struct MigrateCommand {
    /// Folder in Hugging Face layout, a GGUF or an ONNX file, or a suite of a PyTorch module
    model: PathBuf,
    #[command(flatten)]
    target: TargetArgs,
    /// Where the model is known to work
    #[arg(long, value_name = "PLATFORM", default_value = "cpu")]
    source: String,
    /// Prompts, one per line, ![](FILE) before one for an image; bundled ones if not given
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    #[command(flatten)]
    inputs: InputArgs,
    /// Platform that evaluates in f64 the operators of others that TapML does not evaluate itself
    #[arg(long, value_name = "PLATFORM")]
    oracle: Option<String>,
    #[arg(long, help = format!("Decode steps after each prompt; {} if not given", MigrateJob::STEPS))]
    steps: Option<u32>,
    /// Folder that keeps what was decided; .tapml/MODEL-TARGET if not given. Re-running goes on from it
    #[arg(long, value_name = "DIR")]
    ledger: Option<PathBuf>,
    /// Where the HTML report goes; into the ledger's folder if not given
    #[arg(long, value_name = "FILE", value_parser = output::writable())]
    html: Option<PathBuf>,
    #[command(flatten)]
    graph: GraphArgs,
    #[command(flatten)]
    json: JsonArg,
}

impl MigrateCommand {
    /// Migrates, writes the page, and tells by the outcome whether everything was accepted.
    ///
    /// # Errors
    /// If the model cannot be read, or one of the platforms does not run at all. A rejected operator is a result.
    pub fn run(self) -> Result<Outcome> {
        let job = MigrateJob {
            model: self.model,
            target: self.target.target.clone(),
            kernels: self.target.kernel.clone(),
            source: self.source,
            prompts: Prompts::from_file(self.prompts.as_deref()),
            inputs: self.inputs.data(),
            oracle: self.oracle,
            steps: self.steps,
            ledger: self.ledger,
            graph: self.graph.options(),
        };
        let bar = Bar::new();
        let stop = stopping::stop_on_signal()?;
        let migrated = job.run(&bar, &stop);
        bar.finish();
        let ((report, model), ledger) = (migrated?, job.ledger());
        // The ledger's folder exists by now.
        let page = self.html.clone().unwrap_or_else(|| ledger.join("report.html"));
        tapml::files::write(&page, html(&report, model.graph())?.as_bytes())?;
        self.json.say(&render(&report))?;
        // A kernel that was given and never ran is a mistake, not a success.
        let unused = common::note_unused(&self.target.kernel, report.ops.iter().map(|op| op.kernel.as_str()));
        self.json.say(&format!("\nreport: {}\nledger: {}", page.display(), ledger.display()))?;
        self.json.write(&report)?;
        Ok(if report.verdict == Verdict::Accepted && !unused { Outcome::Holds } else { Outcome::Fails })
    }
}

/// Operators, texts, regions, notes, coverage, and the verdict.
fn render(report: &MigrateReport) -> String {
    let (source, target) = (&report.source, &report.target);
    let mut text = format!(
        "{}: {} → {} ({}, {})\n\n",
        report.model.name, source.platform, target.platform, target.device, target.driver
    );
    let mut rows = table(&[
        "STATE", "OP", "NODES", "KERNEL", "CASES", "FAILED", "WORST", "KL", "TOP-1", "LOGITS", "TEXT",
        "SECONDS",
    ])
    .with_optional(&["SECONDS", "NODES", "LOGITS", "TOP-1", "TEXT", "KL"]);
    for op in &report.ops {
        rows.add_row(row(op));
    }
    text += &rows.to_string();
    for op in &report.ops {
        if let Some(reason) = &op.reason {
            text += &format!("\n\n{}: {reason}", op.op);
        }
        text += &op.check.as_ref().map_or(String::new(), details);
    }
    for t in &report.texts {
        text += &format!("\n\n{}", shorten(&t.prompt));
        text += &format!("\n  {:9}{}", source.platform, one_line(&t.source));
        text += &format!("\n  {:9}{}", target.platform, one_line(t.target.as_deref().unwrap_or("-")));
    }
    // Operators can fail together although each passes alone.
    for region in &report.regions {
        let of = format!("\n\n{} nodes from {} to {} as one model", region.nodes, region.first, region.last);
        text += &match (&region.reason, &region.skipped) {
            (Some(reason), _) => {
                let next =
                    region.reproduce.as_ref().map(|next| format!("\n  next: {next}")).unwrap_or_default();
                format!("{of}: {} fail together: {reason}{next}", region.failing.join(", "))
            }
            (None, Some(why)) => format!("{of}: not checked: {why}"),
            (None, None) => {
                format!("{of}: {} of what allowed errors explain", tapml::migrate::ratio_text(region.ratio))
            }
        };
    }
    for note in &report.notes {
        text += &format!("\n\nnote: {note}");
    }
    let c = &report.coverage;
    text += &format!("\n\n{} of {} recorded calls checked", c.checked, c.calls);
    // The page has all of them.
    for skipped in c.skipped.iter().take(10) {
        text += &format!("\n  not checked: {}: {}", skipped.node, skipped.reason);
    }
    if c.skipped.len() > 10 {
        text += &format!("\n  … and {} more (see the report)", c.skipped.len() - 10);
    }
    text += &regimes(report.ops.iter().filter_map(|op| op.check.as_ref()));
    text += &describe_deployed(report);
    let accepted = report.ops.iter().filter(|o| o.state == OpState::Accepted).count();
    let s = &report.seconds;
    text += &format!(
        "\n{}: {accepted} of {} operator kinds now run on {}; {:.1} s (carve {:.1}, check {:.1}, model {:.1}, compile {:.1})",
        verdict_name(report.verdict),
        report.ops.len(),
        target.platform,
        s.total,
        s.carve,
        s.check,
        s.model,
        s.compile
    );
    text
}

/// What the deployed program launches in one step and for one prompt.
/// Empty if no program was deployed.
fn describe_deployed(report: &MigrateReport) -> String {
    if report.deployed.is_empty() {
        return String::new();
    }
    let mut rows =
        table(&["DEPLOYED", "KERNEL", "LAUNCHES", "CASES", "FAILED", "WORST"]).with_optional(&["CASES"]);
    for row in &report.deployed {
        let worst = row.worst.map_or_else(|| "not checked".into(), tapml::migrate::ratio_text);
        let counts = [row.launches, row.cases, row.failed].map(|count| count.to_string());
        let [launches, cases, failed] = counts;
        rows.add_row([row.phase.clone(), row.kernel.clone(), launches, cases, failed, worst]);
    }
    let launches = &report.coverage.launches;
    format!(
        "\n\n{rows}\n\n{} of {} launches of a decode step and {} of {} of a prompt are of checked kernels",
        launches.decode.checked, launches.decode.of, launches.prefill.checked, launches.prefill.of
    )
}

/// The cells of an operator, with dashes for what was not measured.
fn row(op: &OpReport) -> Vec<String> {
    let dash = || "-".to_string();
    let check = op.check.as_ref();
    let model = op.model.as_ref();
    let worst = check.and_then(|c| c.worst.as_ref());
    vec![
        state_name(op.state).to_string(),
        op.op.clone(),
        op.nodes.to_string(),
        op.kernel.clone(),
        check.map_or_else(dash, |c| c.cases.to_string()),
        check.map_or_else(dash, |c| c.failed.to_string()),
        worst.map_or_else(dash, |w| tapml::migrate::ratio_text(w.ratio)),
        model.and_then(|m| m.kl).map_or_else(dash, |kl| format!("{kl:.1e}")),
        model.and_then(|m| m.top1_agreement).map_or_else(dash, |share| format!("{:.1} %", 100.0 * share)),
        model.map_or_else(dash, |m| tapml::migrate::ratio_text(m.max_logit_ratio)),
        model
            .and_then(|m| m.text_equal)
            .map_or_else(dash, |equal| if equal { "equal" } else { "differs" }.to_string()),
        format!("{:.2}", op.seconds),
    ]
}

/// The beginning of a prompt, on one line.
fn shorten(prompt: &str) -> String {
    let line = one_line(prompt);
    match line.char_indices().nth(PROMPT) {
        _ if line.is_empty() => "(no text)".into(),
        // Cut by characters: a byte may lie within one.
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or(&line)),
        None => line,
    }
}

/// Text with its line breaks made visible.
fn one_line(text: &str) -> String {
    text.replace('\n', "\\n")
}

/// The word for a state in the table.
fn state_name(state: OpState) -> &'static str {
    match state {
        OpState::Pending => "pending",
        OpState::Accepted => "accepted",
        OpState::Rejected => "rejected",
        OpState::Unsupported => "unsupported",
    }
}

/// The word for a verdict.
fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Accepted => "accepted",
        Verdict::Rejected => "rejected",
        Verdict::Incomplete => "incomplete",
    }
}
