//! The README of a reproducer: what is wrong, in numbers, and how to see it.
//!
//! It is for people who do not know TapML, such as the maintainers of a driver or a runtime. Texts are Markdown.

use super::case::Case;
use super::contents::Contents;
use super::nodes::Nodes;
use crate::reduce::Reduced;
use crate::report::attributes_of;
use crate::specimen::Specimen;
use crate::trial::Failure;
use std::fmt::Write;
use tapml_exec::PlatformInfo;
use tapml_graph::{Op, Tensor};
use tapml_migrate::tensor_type;

/// Values up to this many are printed.
/// Longer lists are in files.
const SHOWN: usize = 64;

/// The README of the reproducer of operators of others.
pub fn of_nodes(
    case: &str,
    nodes: &Nodes<'_>,
    on: &PlatformInfo,
    found: &Reduced,
    contents: Contents,
) -> String {
    let mut text = format!("# {} {}\n\n", nodes.title("`"), describe_failure(&found.failure));
    let _ = write!(text, "Found on {} ({}).\n\n", on.device, on.platform);
    text += &numbers_of(found, "Run the script several times.");
    if matches!(found.smallest.call.op, Op::Fused(_)) {
        text += TOGETHER;
    }
    let _ = write!(text, "```\n{}```\n\n", nodes.lines());
    text += &sizes(found);
    text += &aspects(found);
    text += &see_it(nodes, &found.failure, contents);
    text += &numbers(found);
    text += &values("Inputs", &found.smallest);
    text += &simpler(found, "they lie in `simplified/`");
    text + &origin(case, found)
}

/// Said where several nodes run together.
const TOGETHER: &str =
    "The nodes run as one model, which the runtime may optimise; what is wrong shows only there.\n\n";

/// How one sees it fail.
fn see_it(nodes: &Nodes<'_>, failure: &Failure, contents: Contents) -> String {
    let count = match nodes.ops().count() {
        1 => "one node".to_string(),
        count => format!("{count} nodes"),
    };
    let what = if contents.model && contents.program {
        format!("`model.onnx`, which PyTorch exported from `module.pt2`, {count},")
    } else if contents.program {
        format!("`module.pt2`, an exported program of {count},")
    } else if contents.model {
        format!("`model.onnx`, {count},")
    } else {
        format!("a PyTorch module of the {count} above, with `constants/`,")
    };
    let torch = if contents.model { "" } else { "PyTorch, " };
    let mut text = String::from("## See it\n\n");
    text += &if contents.script {
        format!("    python repro.py\n\nneeds {torch}the runtime and NumPy. It runs {what} on `inputs/`.\n")
    } else {
        format!("Run {what} on `inputs/`.\n")
    };
    text += match failure {
        Failure::Wrong(_) => COMPARED,
        Failure::Error(_) => "It should run, and give a result of the shape of `expected.npy`.\n",
    };
    text + if contents.script { "Exit code 0: passes, 1: fails.\n\n" } else { NO_SCRIPT }
}

/// Said where there is nothing to run it by.
const NO_SCRIPT: &str = "No script is given: TapML does not know how this runtime is called on this device, NumPy has no such elements, or PyTorch does not
export the call.

";

/// How the result is compared, for the reader of a script.
const COMPARED: &str = "`expected.npy` is what the first result should be, the exact one (in `f64` on these inputs). Each element may
be off by its own error in `allowed.npy`, which follows from the rounding of its type, the precision of sums, and how far the exact
result moves when the inputs move by a few roundings.
";

/// The README of a reproducer of kernels.
pub fn readme(case: &Case, found: &Reduced) -> String {
    let mut text = format!("# `{}` {}\n\n", case.op, describe_failure(&found.failure));
    text += &facts(case, found);
    text += RUN;
    text += &numbers(found);
    text += &values("Inputs", &found.smallest);
    text += &simpler(found, "`--values simplified` runs them");
    text += &origin(&case.case, found);
    text
}

/// With which sizes the whole call fails.
fn sizes(found: &Reduced) -> String {
    if found.sizes.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "## Sizes that matter\n\nOf the call as it was recorded, one axis or two at a time made shorter:\n\n",
    );
    for rule in &found.sizes {
        let tried = match rule.tried_pairs.len() {
            0 => format!("{:?}", rule.tried),
            pairs => format!("{pairs} pairs"),
        };
        let _ = writeln!(text, "* {}: fails if {} (tried: {tried}).", rule.axis, rule.fails);
    }
    text + "\n"
}

/// On what else it depends that the whole call fails.
fn aspects(found: &Reduced) -> String {
    if found.aspects.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "## What else matters\n\nOf the call as it was recorded, one property at a time changed:\n\n\
         | property | fails | passes | not served |\n|---|---|---|---|\n",
    );
    for aspect in &found.aspects {
        // A bar would end the cell of the table.
        let list = |values: &[String]| values.join("; ").replace('|', "\\|");
        let (fails, passes) = (list(&aspect.fails), list(&aspect.passes));
        let _ = writeln!(text, "| {} | {fails} | {passes} | {} |", aspect.name, list(&aspect.not_served));
    }
    text + "\n"
}

/// The simpler values, if there are any, and `how` one runs them.
fn simpler(found: &Reduced, how: &str) -> String {
    let Some(simple) = &found.simplified else { return String::new() };
    format!(
        "## Simpler values\n\n{} elements can be simpler and it still fails ({}). These values are **not** the model's own; \
         {how}.\n\n{}",
        simple.changed,
        times(simple.failure.ratio()),
        list(&simple.specimen)
    )
}

/// What is wrong, in a few words.
pub fn describe_failure(failure: &Failure) -> String {
    match failure {
        Failure::Wrong(_) => "gives wrong results".into(),
        Failure::Error(error) => format!("cannot be run: {}", error.kind().name()),
    }
}

/// A ratio in words.
fn times(ratio: f64) -> String {
    match ratio {
        r if r.is_infinite() => "where no error is allowed".into(),
        r if r < 1000.0 => format!("{r:.1} times the allowed error"),
        r => format!("{r:.1e} times the allowed error"),
    }
}

/// Where it was found, and what decided.
fn facts(case: &Case, found: &Reduced) -> String {
    let at = &case.found_on;
    let with =
        format!("Found on {} ({}, {}) with kernel `{}`.\n\n", at.platform, at.device, at.driver, case.kernel);
    with + &numbers_of(found, "Give `--runs 100`.")
}

/// What decided, and how often; `again` says how one tries it often.
fn numbers_of(found: &Reduced, again: &str) -> String {
    let mut text = String::new();
    match &found.failure {
        Failure::Wrong(wrong) => {
            let w = &wrong.judgement.worst;
            let _ = write!(
                text,
                "Decided by: {}, {}. Worst element: output {} at {}: exact {:.9e}, found {:.9e}, allowed error {:.3e}.\n\n",
                found.failure.criterion(),
                times(found.failure.ratio()),
                w.output,
                w.index,
                w.exact,
                w.observed,
                w.allowed,
            );
        }
        Failure::Error(error) => {
            let _ = write!(text, "The platform says:\n\n```\n{error}\n```\n\n");
        }
    }
    let s = found.stability;
    text += &if s.steady() {
        format!("It failed in each of {} runs.\n\n", s.runs)
    } else {
        format!("**It does not fail every time**: in {} of {} runs. {again}\n\n", s.failed, s.runs)
    };
    text
}

/// How to run the folder.
const RUN: &str = "## See it

Nothing but these files is needed.

* Natively (Vulkan, Metal, DX12 through wgpu, which needs a Rust toolchain): `cargo run -- --list` shows the adapters,
  `cargo run -- 0` runs on the first. Exit code 0: passes, 1: fails, 2: could not run.
* In a browser with WebGPU: open `index.html`. It prints PASS or FAIL.

`case.json` says what is bound, launched and compared; `kernels/` holds the WGSL (without `enable` lines, which each runner
adds), `data/` the bytes. Each output element is compared with the exact result (the operator in `f64` on these inputs) and
may be off by its own allowed error, which follows from the rounding of its type, the precision in which the kernel adds up,
and how far the exact result moves when the inputs move by a few roundings.

";

/// All outputs, expected and found, if they are few.
fn numbers(found: &Reduced) -> String {
    let Failure::Wrong(wrong) = &found.failure else { return String::new() };
    let total: usize = wrong.exact.iter().map(|e| e.values.len()).sum();
    if total > SHOWN {
        return String::new();
    }
    let mut text = String::from("## Outputs\n\n| output | element | expected | found |\n|---|---|---|---|\n");
    for (i, (exact, observed)) in wrong.exact.iter().zip(&wrong.observed).enumerate() {
        for (e, (exact, observed)) in exact.values.iter().zip(observed.to_f64()).enumerate() {
            let _ = writeln!(text, "| {i} | {e} | {exact:.9e} | {observed:.9e} |");
        }
    }
    text + "\n"
}

/// A section with the inputs.
fn values(title: &str, specimen: &Specimen) -> String {
    format!("## {title}\n\n{}", list(specimen))
}

/// Type and values of each input.
fn list(specimen: &Specimen) -> String {
    let mut text = String::new();
    for (i, tensor) in specimen.call.inputs.iter().enumerate() {
        let weight = if specimen.is_weight[i] { ", a weight" } else { "" };
        let _ = write!(text, "Input {i}: `{}`{weight}", tensor_type(tensor));
        text += &if tensor.len() <= SHOWN {
            format!("\n\n```\n{}\n```\n\n", rows(tensor))
        } else {
            " in the files beside this one\n\n".to_string()
        };
    }
    text
}

/// The values, a line for each row.
fn rows(tensor: &Tensor) -> String {
    let values = tensor.to_f64();
    // `chunks` panics at a width of 0, which an empty tensor may have.
    let width = tensor.shape().last().copied().unwrap_or(1).max(1);
    let row = |row: &[f64]| row.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
    values.chunks(width).map(row).collect::<Vec<_>>().join("\n")
}

/// Which recorded call it was made of, and how much smaller it is.
fn origin(case: &str, found: &Reduced) -> String {
    let (whole, small) = (&found.whole, &found.smallest);
    let types = |s: &Specimen| {
        s.call.inputs.iter().map(|t| format!("`{}`", tensor_type(t))).collect::<Vec<_>>().join(" ")
    };
    let symbols = |s: &Specimen| {
        s.call.symbols.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ")
    };
    let mut text = format!(
        "## Where it is from\n\nCase `{case}`{} of a model that was run by TapML, made smaller:\n\n| | recorded | here |\n|---|---|---|\n",
        match &whole.call.op {
            Op::Fused(_) => format!(" (nodes `{}`)", whole.call.node),
            _ => String::new(),
        }
    );
    let mut row = |name: &str, before: String, after: String| {
        let _ = writeln!(text, "| {name} | {before} | {after} |");
    };
    row("input elements", whole.elements().to_string(), small.elements().to_string());
    row("inputs", types(whole), types(small));
    row("sizes", symbols(whole), symbols(small));
    let attributes = |s: &Specimen| format!("`{}`", attributes_of(&s.call));
    row("attributes", attributes(whole), attributes(small));
    let minimal = if found.minimal {
        "It is a proven minimum: without any single index of any axis (row, column, head, cached token) it no longer \
                 fails clearly."
    } else {
        "Time ran out: it may get smaller still."
    };
    let (trials, seconds) = (found.trials, found.seconds);
    let _ = write!(text, "\n{minimal} {trials} calls were run, which took {seconds:.1} s.\n");
    text
}
