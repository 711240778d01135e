//! The matrix of models and targets as a page in Markdown.
//!
//! Tests compare it with the page in the documentation.

use super::report::{Report, cells, parameters};
use crate::output::bytes;

/// Columns that do not depend on targets, and whether they hold numbers.
const COLUMNS: [(&str, bool); 8] = [
    ("model", false),
    ("architecture", false),
    ("parameters", true),
    ("context", true),
    ("planned", true),
    ("cache", true),
    ("f16", true),
    ("4-bit", true),
];

/// The page. It depends on the report's numbers alone, not on when or where they were found.
///
/// Columns of targets have the order of the first table's rows.
pub fn page(report: &Report) -> String {
    let mut text = introduction(report);
    text += "\n## Targets\n\n| target | what it is | memory | largest binding | activations |\n|---|---|---|---|---|\n";
    for t in &report.targets {
        let (memory, binding) = (bytes(t.memory), bytes(t.limits.max_binding_size));
        text += &format!("| `{}` | {} | {memory} | {binding} | {} |\n", t.target, t.about, t.activation);
    }
    // They are named all the same, so that nobody takes them for forgotten.
    for t in tapml::dry_run::TARGETS.iter().filter(|t| t.limits.is_none()) {
        text += &format!("| `{}` | not planned for: {} | | | |\n", t.name, t.about);
    }
    text += "\n## Models\n\n";
    text += &summary(report);
    let names: Vec<String> = report.targets.iter().map(|t| format!("`{}`", t.target)).collect();
    let fixed: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    text += &format!("| {} | {} |\n", fixed.join(" | "), names.join(" | "));
    let rule: String = COLUMNS.iter().map(|(_, number)| if *number { "---:|" } else { "---|" }).collect();
    text += &format!("|{rule}{}\n", "---|".repeat(names.len()));
    for model in &report.models {
        let mut row = cells(&model.plan);
        // Without a plan there is no count: the published one stands in brackets.
        if let (None, Some(published)) = (&model.plan.size, model.published_parameters) {
            row[2] = format!("({})", parameters(published));
        }
        // A bar would begin another cell.
        let row: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        text += &format!("| {} |\n", row.join(" | "));
    }
    text
}

/// What stands above the tables.
fn introduction(report: &Report) -> String {
    let (step, positions) = (report.lengths.step_tokens, report.lengths.positions);
    format!(
        "# Models

Published models against targets, planned from their configurations alone: no weights are read and no device is
opened. This page is generated from [models.tsv](../data/models.tsv). A test checks that it is current (`TAPML_BLESS=1`
writes it).

    tapml compile --dry-run --list docs/data/models.tsv --markdown docs/reference/models.md

For each model the graph is built at full size with every shape checked. Every kernel is specialised and validated within
the target's limits. The memory of the compiled program is planned for:

* weights in f16;
* steps of up to {step} tokens;
* up to {positions} positions (*planned*), or fewer where the model's context is shorter;
* logits of the last position.

*Cache* is the size of caches and other states in f16 at that length. *4-bit* is a plan of the weights' size alone:
matrices in 4 bits with a scale in f16 for every 32 weights of a row, 4.5 bits for each. *4-bit fits* says that the memory
would suffice. `--quantize q4` plans the kernels, too.

| a cell | says |
|---|---|
| `fits` | it fits |
| `too big:` | what is too big, and which limit is too low; `memory` is the memory assumed for the target |
| `unsupported:` | the architecture, the key or the operator |

Sizes of models whose architecture is not supported are the published ones, in brackets.
"
    )
}

/// How many models each target takes.
///
/// A model that fits in f16 is not counted again for 4 bits.
fn summary(report: &Report) -> String {
    let count = report.models.len();
    let mut text = format!("{count} models.");
    for (index, target) in report.targets.iter().enumerate() {
        let plans = || report.models.iter().map(|m| &m.plan.targets[index]);
        let whole = plans().filter(|t| t.f16.fits()).count();
        let small = plans().filter(|t| !t.f16.fits() && t.q4.fits()).count();
        text += &format!(" `{}`: {whole} fit in f16, {small} more would in 4 bits.", target.target);
    }
    text + "\n\n"
}
