//! `tapml diagnose`: every faulty operator and every fault between operators of a model on a target, and why.
//!
//! Faults are ordered by what they do to the model's output. Everything here is text: the page and the JSON hold all
//! numbers.

use super::common::{GraphArgs, InputArgs, TargetArgs};
use crate::Outcome;
use crate::output::{self, JsonArg};
use crate::progress::Bar;
use crate::stopping;
use anyhow::Result;
use clap::Args;
use std::path::{Path, PathBuf};
use tapml::diagnose::{Blames, DiagnoseOptions, Diagnosis, Fault, FaultKind, Impact, NotRun, html};
use tapml::jobs::{DiagnoseJob, MigrateJob};
use tapml::migrate::ratio_text;
use tapml::prompts::Prompts;
use tapml::shown;

/// Nodes of a fault that are listed by name.
const LISTED: usize = 4;

/// Find every faulty operator of a model on a target, and faults between operators, in one run, and say why.
#[derive(Args)]
#[command(
    after_help = "Example:\n  tapml diagnose models/llama --target emulator --kernel rms_norm=mine.wgsl --html faults.html"
)]
pub struct DiagnoseCommand {
    /// Folder in Hugging Face layout, a GGUF or an ONNX file, or a suite of a PyTorch module
    model: PathBuf,
    #[command(flatten)]
    target: TargetArgs,
    /// Where the model is known to work
    #[arg(long, value_name = "PLATFORM", default_value = "cpu")]
    source: String,
    /// Prompts, one per line; bundled ones if not given
    #[arg(long, value_name = "FILE", conflicts_with = "suite")]
    prompts: Option<PathBuf>,
    #[command(flatten)]
    inputs: InputArgs,
    /// Platform that evaluates in f64 the operators of others that TapML does not evaluate itself
    #[arg(long, value_name = "PLATFORM")]
    oracle: Option<String>,
    /// A suite that `tapml carve` or `tapml migrate` has made of the model; carved if not given
    #[arg(long, value_name = "SUITE", conflicts_with = "steps")]
    suite: Option<PathBuf>,
    #[arg(long, help = format!("Decode steps after each prompt; {} if not given", MigrateJob::STEPS))]
    steps: Option<u32>,
    /// How often calls, and the whole model, are run to compare the results bit by bit
    #[arg(long, default_value_t = DiagnoseOptions::default().repeats as u32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Check operators alone only, not what happens between them
    #[arg(long)]
    operators: bool,
    /// Where the HTML report goes; into .tapml/MODEL-TARGET if not given
    #[arg(long, value_name = "FILE", value_parser = output::writable())]
    html: Option<PathBuf>,
    #[command(flatten)]
    graph: GraphArgs,
    #[command(flatten)]
    json: JsonArg,
}

impl DiagnoseCommand {
    /// Diagnoses, writes the page, and tells by the outcome whether the target is at fault.
    ///
    /// # Errors
    /// If the model cannot be read, or one of the platforms does not run at all.
    pub fn run(self) -> Result<Outcome> {
        let job = DiagnoseJob {
            model: self.model.clone(),
            target: self.target.target.clone(),
            kernels: self.target.kernel.clone(),
            source: self.source.clone(),
            prompts: Prompts::from_file(self.prompts.as_deref()),
            inputs: self.inputs.data(),
            oracle: self.oracle.clone(),
            suite: self.suite.clone(),
            steps: self.steps,
            repeats: self.repeats,
            between: !self.operators,
            graph: self.graph.options(),
        };
        let (bar, stop) = (Bar::new(), stopping::stop_on_signal()?);
        let found = job.run(&bar, &stop);
        bar.finish();
        let (found, folder) = (found?, job.folder());
        let page = self.page(&folder)?;
        tapml::files::write(&page, html(&found)?.as_bytes())?;
        self.json.say(&render(&found))?;
        self.json.say(&format!("\nreport: {}", page.display()))?;
        self.json.write(&found)?;
        // Faults of the source do not fail the target; what was not run is not known to hold.
        Ok(match (found.of_target().next().is_none(), found.holds()) {
            (false, _) => Outcome::Fails,
            (true, false) => Outcome::NotRun,
            (true, true) => Outcome::Holds,
        })
    }

    /// Where the page goes; the folder of the job is made for it.
    fn page(&self, folder: &Path) -> Result<PathBuf> {
        if let Some(page) = &self.html {
            return Ok(page.clone());
        }
        std::fs::create_dir_all(folder).map_err(|e| tapml::Error::io("create", folder, &e))?;
        Ok(folder.join("diagnosis.html"))
    }
}

/// The faults by their impact, what is clean, what was not run, and the totals.
fn render(found: &Diagnosis) -> String {
    let (source, target) = (&found.source, &found.target);
    let mut text = format!(
        "{}: {} → {} ({}, {})",
        found.model.name, source.platform, target.platform, target.device, target.driver
    );
    for (number, fault) in (1..).zip(found.faults_by_impact()) {
        text += &block(number, fault);
    }
    if !found.clean_ops.is_empty() {
        text += &format!("\n\nclean: {}", found.clean_ops.join(", "));
    }
    for NotRun { op, kernel, reason } in &found.not_run {
        let kernel = if kernel.is_empty() { String::new() } else { format!(" ({kernel})") };
        text += &format!("\nnot run: {op}{kernel}: {reason}");
    }
    if let Some(whole) = &found.whole {
        let kl = whole.kl.map(|kl| format!(", KL {kl:.1e}")).unwrap_or_default();
        // Nodes of faulty operators do not run on the target then.
        let without = if found.faults.iter().any(|f| f.kind == FaultKind::Operator) {
            " but the nodes of faulty operators"
        } else {
            ""
        };
        text += &format!(
            "\nthe whole model with everything{without} on {}: {} of what allowed errors explain{kl}",
            target.platform,
            ratio_text(whole.max_logit_ratio)
        );
    }
    // The report has the others.
    for skipped in found.skipped.iter().take(10) {
        text += &format!("\nnot checked: {}: {}", skipped.node, skipped.reason);
    }
    if found.skipped.len() > 10 {
        text += &format!("\n… and {} more (see the report)", found.skipped.len() - 10);
    }
    for note in &found.notes {
        text += &format!("\nnote: {note}");
    }
    let stages = found.stages.iter().map(|s| format!("{} {:.1}", s.name, s.seconds)).collect::<Vec<_>>();
    text += &format!(
        "\n\n{}, {} operator kinds clean{}; {} recorded calls checked; {:.1} s ({})",
        count(found.faults.len(), "fault"),
        found.clean_ops.len(),
        if found.not_run.is_empty() { String::new() } else { format!(", {} not run", found.not_run.len()) },
        found.calls,
        found.seconds,
        stages.join(", ")
    );
    text
}

/// A number with its noun, which takes an `s`.
fn count(n: usize, what: &str) -> String {
    match n {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}

/// What is known of one fault: what, where, why, how much, and what to do next.
fn block(number: usize, fault: &Fault) -> String {
    let what = match fault.kind {
        FaultKind::Operator => format!("operator {} ({})", fault.op, fault.kernel),
        FaultKind::Between => format!("between operators: {}", fault.op),
    };
    let what = match &fault.inner_operator {
        Some(inner) => format!("{what}: {inner} within it"),
        None => what,
    };
    let what = match fault.blames {
        Blames::Target => what,
        Blames::Source => format!("{what}, of the source"),
    };
    let heading = shown::strong(&format!("fault {number}: {what}"));
    let mut lines = vec![("where", nodes(fault))];
    let sure = fault.sure();
    lines.push(("cause", format!("{}{}{sure}", fault.cause, if sure.is_empty() { "" } else { ", " })));
    lines.extend(fault.rule.iter().map(|rule| ("fails if", rule.clone())));
    lines.push(("evidence", fault.evidence.clone()));
    lines.push(("error", numbers(fault)));
    // The evidence may quote a finding already.
    for finding in fault.findings.iter().take(2).filter(|f| !fault.evidence.contains(&f.message)) {
        lines.push(("seen", finding.to_string()));
    }
    if let Some(picture) = &fault.error_map {
        lines.push(("wrong", format!("{}\n{}", picture.text, picture.drawing)));
    }
    lines.push(("harm", fault.output_impact.as_ref().map_or("not measured".into(), describe_impact)));
    lines.extend(fault.reproduce.iter().map(|command| ("next", command.clone())));
    let mut text = format!("\n\n{heading}");
    for (name, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        // Further lines of a value are indented under its first.
        text += &format!("\n  {name:9} {}", value.trim_end().replace('\n', "\n            "));
    }
    text
}

/// The first nodes of a fault, and the types at which it shows if others are right.
fn nodes(fault: &Fault) -> String {
    let mut names = fault.nodes.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
    if fault.nodes.len() > LISTED {
        names += &format!(" and {} more nodes", fault.nodes.len() - LISTED);
    }
    let fail = fault.variants.iter().filter(|v| v.failed > 0);
    let some = fault.variants.iter().any(|v| v.failed == 0);
    let types: Vec<&str> = fail.map(|v| v.types.as_str()).collect();
    // Types are worth a word only if the fault does not show at all of them.
    if some && !types.is_empty() {
        let right = fault.variants.len() - types.len();
        names += &format!("; only at {}, {} other variants are right", types.join(" and at "), right);
    }
    names
}

/// How many calls fail, where first, and by how much.
fn numbers(fault: &Fault) -> String {
    let mut text = match fault.cases {
        0 => String::new(),
        cases => format!("{} of {cases} calls; ", fault.failed),
    };
    text += &format!("first {}", fault.first_bad_case);
    // A ratio up to 1 is within the allowed error: then another criterion failed.
    if fault.worst_ratio > 1.0 {
        let case = fault.worst_case.as_ref().map(|c| format!(" ({c})")).unwrap_or_default();
        text += &format!("; worst {} times the allowed error{case}", ratio_text(fault.worst_ratio));
    }
    if let Some(e) = &fault.element {
        text += &format!(
            "\nat element {}: exact {:.8e}, found {:.8e}, allowed error {:.3e}",
            e.index, e.exact, e.observed, e.allowed
        );
    }
    text
}

/// What the wrong values do to the model's output.
fn describe_impact(impact: &Impact) -> String {
    // It is infinite where the target gives no chance to what the source allows.
    let kl = if impact.kl.is_finite() { format!("{:.1e}", impact.kl) } else { "infinite".into() };
    let Impact { changed, positions, case, .. } = impact;
    let first = match changed {
        0 if *positions == 1 => "the same token comes first".into(),
        0 => format!("the same token comes first at all {positions} positions"),
        n => format!("another token comes first at {n} of {positions} positions"),
    };
    format!("logits of {case}: KL {kl}, {first}")
}
