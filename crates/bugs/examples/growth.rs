//! How the time of a diagnosis grows with tokens and layers: a model without a fault on the emulator, with a prompt, with one
//! twice as long, and with half of its layers.
//!
//! `cargo run --release -p tapml-bugs --example growth -- models/llama 24 3`: model, tokens of the prompt, runs.

use std::path::Path;
use tapml_bugs::Workbench;
use tapml_bugs::bench::{Fixture, FixtureOptions, diagnose_faults};
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_graph::{Error, Model, Result, fuse};
use tapml_import::Checkpoint;
use tapml_migrate::{Quiet, Stop};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().unwrap_or_else(|| "models/llama".into());
    let mut number = |default: u32| args.next().and_then(|a| a.parse().ok()).unwrap_or(default);
    let (tokens, runs) = (number(24), number(3));
    let temporary = tempfile::tempdir().map_err(|e| Error::io("create a folder in", Path::new("."), &e))?;
    let whole = open(Path::new(&folder))?;
    let half = open(&halve_model(Path::new(&folder), temporary.path())?)?;
    println!(
        "| layers | tokens | calls | seconds, median (least to most) of {runs} | of processors |\n|---|---|---|---|---|"
    );
    for (layers, model, tokens) in
        [("all", &whole, tokens), ("all", &whole, 2 * tokens), ("half", &half, tokens)]
    {
        let suite = temporary.path().join(format!("{layers}-{tokens}"));
        let prompt = (0..tokens).map(|i| (131 * i) % 1000 + 3).collect();
        let options = FixtureOptions { prompts: vec![prompt], steps: 2 };
        let calls =
            Fixture::carve("growth", model, &options, &suite, &Quiet, &Stop::new())?.suite.cases().count();
        let found = (0..runs.max(1)).map(|_| diagnosis(model, &suite)).collect::<Result<Vec<_>>>()?;
        let (wall, cpu) = (spread(found.iter().map(|f| f.0)), spread(found.iter().filter_map(|f| f.1)));
        println!("| {layers} | {tokens} | {calls} | {wall} | {cpu} |");
    }
    Ok(())
}

/// Median, least and most.
fn spread(seconds: impl Iterator<Item = f64>) -> String {
    let mut all: Vec<f64> = seconds.collect();
    all.sort_by(f64::total_cmp);
    match (all.first(), all.get(all.len() / 2), all.last()) {
        (Some(least), Some(median), Some(most)) => format!("{median:.2} ({least:.2} to {most:.2})"),
        _ => "unknown".into(),
    }
}

/// Seconds of processors that this process has used, where Linux tells: they say more than the clock on a busy machine.
fn cpu() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}

fn open(folder: &Path) -> Result<Model> {
    let checkpoint = Checkpoint::open(folder)?;
    checkpoint.model().with_graph(fuse(checkpoint.graph())?)
}

/// The model with half of its layers, in a folder of its own.
fn halve_model(folder: &Path, out: &Path) -> Result<std::path::PathBuf> {
    let io = |e: std::io::Error| Error::io("copy", folder, &e);
    let out = out.join("half");
    std::fs::create_dir(&out).map_err(io)?;
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        std::fs::copy(entry.path(), out.join(entry.file_name())).map_err(io)?;
    }
    let path = out.join("config.json");
    let wrong = |e: serde_json::Error| Error::invalid(format!("config.json: {e}"));
    let mut config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).map_err(io)?).map_err(wrong)?;
    let layers = config["num_hidden_layers"].as_u64().unwrap_or(0) / 2;
    config["num_hidden_layers"] = layers.max(1).into();
    std::fs::write(&path, config.to_string()).map_err(io)?;
    Ok(out)
}

/// Seconds of one diagnosis with nothing known before, by the clock and of processors.
fn diagnosis(model: &Model, suite: &Path) -> Result<(f64, Option<f64>)> {
    let before = cpu();
    let bed = Fixture::open("growth", model, suite)?;
    let bench = Workbench::new(Box::new(Emulator::new(EmulatorOptions::default())?));
    let found = diagnose_faults(&bed, "growth", (&bench, None), &[], &[], &Stop::new())?;
    match (found.error, found.reports.is_empty()) {
        (Some(error), _) => Err(Error::bug(error)),
        (None, false) => Err(Error::bug(format!("a fault where there is none: {:?}", found.reports))),
        (None, true) => Ok((found.seconds, cpu().zip(before).map(|(now, before)| now - before))),
    }
}
