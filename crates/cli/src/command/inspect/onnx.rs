//! `tapml inspect` of an ONNX model: what the file consists of.
//!
//! Weights are counted, not read; nothing is run.

use crate::Outcome;
use crate::output::{JsonArg, bytes, table};
use anyhow::Result;
use serde::Serialize;
use std::path::Path;
use tapml::import::onnx::{File, Outline, ValueOutline};

/// What is written as JSON.
#[derive(Serialize)]
struct Report<'m> {
    schema: u32,
    model: String,
    format: &'static str,
    /// Its fields stand beside the others.
    #[serde(flatten)]
    outline: &'m Outline,
}

/// Prints the outline of a file.
///
/// # Errors
/// If the file cannot be read, or is no such model.
pub fn show(path: &Path, json: &JsonArg) -> Result<Outcome> {
    let outline = File::open(path)?.outline();
    let report = Report { schema: 1, model: path.display().to_string(), format: "onnx", outline: &outline };
    json.say(&render(&report))?;
    json.write(&report)?;
    Ok(Outcome::Holds)
}

/// Inputs, outputs, operators and weights.
fn render(report: &Report<'_>) -> String {
    let o = report.outline;
    let opsets: Vec<String> = o.opsets.iter().map(|set| format!("{} {}", set.domain, set.version)).collect();
    let mut text = format!("{} (ONNX, format {}): {}", report.model, o.ir_version, opsets.join(", "));
    if !o.producer.is_empty() {
        text += &format!(", written by {}", o.producer);
    }
    let values = |values: &[ValueOutline]| -> String {
        values.iter().map(|value| format!("\n  {}: {}", value.name, value.ty)).collect()
    };
    text += &format!("\ninputs{}\noutputs{}\n\n", values(&o.inputs), values(&o.outputs));
    let mut ops = table(&["OPERATOR", "NODES"]);
    for operator in &o.operators {
        ops.add_row([operator.operator.clone(), operator.nodes.to_string()]);
    }
    ops.add_row(["all".to_string(), o.nodes.to_string()]);
    let mut weights = table(&["DTYPE", "TENSORS", "ELEMENTS", "BYTES"]);
    for w in &o.weights {
        weights.add_row([w.dtype.clone(), w.tensors.to_string(), w.elements.to_string(), bytes(w.bytes)]);
    }
    text += &format!("{ops}\n\n{weights}");
    // Nothing is said of what a file does not have.
    let listed = |what: &str, names: &[String]| {
        if names.is_empty() { String::new() } else { format!("\n\n{what}: {}", names.join(", ")) }
    };
    if o.subgraphs > 0 {
        text += &format!("\n\n{} graphs within nodes", o.subgraphs);
    }
    text + &listed("functions", &o.functions) + &listed("files of weights", &o.external_files)
}
