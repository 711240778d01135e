//! Real kernels with planted faults on recorded calls of a real model: what is said of each, and how often it is right.
#![allow(clippy::unwrap_used)]

// The calls with exact results of the tests of causes, which may not use this crate.
#[path = "../../cause/tests/common/mod.rs"]
mod cases;

use cases::{Case, brief};
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;
use tapml_bugs::{Catalogue, Mutant, Workbench};
use tapml_cause::{Cause, DeviceFinding, Earlier, Evidence, Explanation, explain};
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_exec::{Call, CpuPlatform, DevicePlatform, Overrides, Platform};
use tapml_graph::{Model, Result, Tensor, fuse};
use tapml_import::Checkpoint;
use tapml_migrate::suite::Suite;
use tapml_migrate::{CarveOptions, ModelIdentity, PromptInput, Quiet, Stop, carve};

/// Causes that are right for the mutants of an operator of the bench. An index that leaves out the last elements has
/// dropped the tail, whichever part of it is wrong.
const RIGHT: &[(&str, &[&str])] = &[
    ("wrong-sign", &["wrong_sign", "wrong_constant"]),
    ("swapped-operands", &["swapped_operands", "wrong_sign", "wrong_formula", "wrong_scale"]),
    ("dropped-factor", &["missing_scale", "missing_term", "wrong_scale", "wrong_constant", "missing_bias"]),
    ("dropped-term", &["missing_term", "missing_bias", "missing_scale", "wrong_constant", "wrong_formula"]),
    ("rough-exp", &["wrong_formula"]),
    ("overflowing-exp", &["overflow", "wrong_formula"]),
    ("overflowing-tanh", &["overflow", "wrong_formula"]),
    ("rough-root", &["wrong_formula", "wrong_scale"]),
    // A sum behind a norm that is rounded scales each row by a factor of its own, as a sum that lacks a term does.
    ("f16-sum", &["f16_accumulation", "wrong_scale"]),
    ("bf16-sum", &["f16_accumulation", "wrong_scale"]),
    (
        "accumulation",
        &["missing_term", "tail_dropped", "wrong_formula", "missing_scale", "wrong_scale", "not_written"],
    ),
    ("through-integer", &["wrong_cast", "rounding", "conversion_order"]),
    ("truncated-store", &["rounding"]),
    ("wrong-constant", &["wrong_constant", "wrong_scale", "missing_scale", "missing_term", "wrong_sign"]),
    (
        "wrong-flag",
        &[
            "wrong_formula",
            "mask_ignored",
            "missing_bias",
            "missing_scale",
            "wrong_cast",
            "window_ignored",
            "mask_shifted",
            "wrong_stride",
            "missing_term",
        ],
    ),
    ("wrong-base", &["wrong_constant"]),
    ("swapped-inputs", &["swapped_operands"]),
    ("wrong-size", &["wrong_stride", "tail_dropped", "off_by_one", "wrong_head"]),
    (
        "bound",
        &["off_by_one", "wrong_stride", "tail_dropped", "not_written", "mask_shifted", "out_of_bounds"],
    ),
    ("tail-dropped", &["tail_dropped", "not_written", "mask_shifted"]),
    ("first-skipped", &["off_by_one", "tail_dropped", "not_written"]),
    (
        "offset",
        &[
            "off_by_one",
            "wrong_stride",
            "tail_dropped",
            "not_written",
            "position_shifted",
            "mask_shifted",
            "wrong_head",
        ],
    ),
    (
        "offset-ignored",
        &[
            "off_by_one",
            "wrong_stride",
            "tail_dropped",
            "not_written",
            "missing_term",
            "mask_shifted",
            "position_shifted",
            "wrong_head",
            "wrong_scale",
        ],
    ),
    ("stride", &["off_by_one", "wrong_stride", "tail_dropped", "not_written", "wrong_head"]),
    ("division", &["wrong_stride", "wrong_head", "transposed"]),
    ("swapped-rows", &["rows_swapped", "columns_swapped", "wrong_head", "wrong_stride", "off_by_one"]),
    (
        "swapped-axes",
        &["transposed", "wrong_head", "rows_swapped", "not_written", "wrong_stride", "tail_dropped"],
    ),
    ("position", &["position_shifted", "mask_shifted", "wrong_slot"]),
    ("last-workgroup", &["tail_dropped", "not_written"]),
    ("no-barrier", &["race"]),
    ("no-store", &["uninitialised", "not_written"]),
    ("racing-lanes", &["race"]),
    ("racing-groups", &["race", "not_written", "wrong_head", "wrong_stride"]),
];

const PROMPTS: [&[u32]; 2] = [
    &[0, 355, 628, 910, 2331, 1155, 271, 3447, 1324, 265, 3524, 654, 1243, 283, 910, 265, 293, 1199, 14],
    &[0, 265, 2458, 85, 1100, 450, 351],
];

/// Calls of each operator, in the order in which they ran.
struct Fixture {
    calls: HashMap<&'static str, Vec<(Case, Vec<Tensor>)>>,
}

impl Fixture {
    fn from_model(model: &Model) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("suite");
        let prompts: Vec<PromptInput> =
            PROMPTS.iter().map(|ids| PromptInput { ids: ids.to_vec(), ..PromptInput::default() }).collect();
        let identity =
            ModelIdentity { name: "llama".into(), path: "llama".into(), ..ModelIdentity::default() };
        let options = CarveOptions {
            out: &out,
            overwrite: true,
            steps: 2,
            self_contained: false,
            context: 0,
            decode: &|_| String::new(),
        };
        carve(&mut CpuPlatform::new(), model, identity, &prompts, &options, &Quiet, &Stop::new()).unwrap();
        let suite = Suite::open(&out).unwrap();
        let replay = suite.model(Some(model)).unwrap();
        let mut calls: HashMap<&'static str, Vec<(Case, Vec<Tensor>)>> = HashMap::new();
        let mut taken: HashMap<(&'static str, usize), usize> = HashMap::new();
        for case in suite.cases() {
            let node = suite.graph().node(case.node);
            let count = taken.entry((node.op.name(), case.frame)).or_default();
            *count += 1;
            // Two nodes of each operator in the first prefill, a decode step and the second prefill.
            if *count > 2 || ![0, 1, 3].contains(&case.frame) {
                continue;
            }
            let (call, recorded) = suite.call(case, &replay).unwrap();
            let own = Case::new(suite.case_id(case), call);
            calls.entry(node.op.name()).or_default().push((own, recorded));
        }
        Fixture { calls }
    }
}

fn replay(platform: &mut DevicePlatform, calls: &[Call]) -> Option<Vec<Vec<Tensor>>> {
    let mut outputs: Vec<Option<Vec<Tensor>>> = vec![None; calls.len()];
    platform.replay(calls, &mut |i, o: Result<Vec<Tensor>>| outputs[i] = o.ok()).ok()?;
    outputs.into_iter().collect()
}

/// What is said of one mutant, and what without a device that checks, as of kernels that only a GPU takes.
struct Said {
    said: Explanation,
    unchecked: Explanation,
    seconds: f64,
    case: String,
}

/// See [`Said`]; `None` if no call shows the mutant.
fn examine(bed: &Fixture, benches: &[Workbench; 2], mutant: &Mutant) -> Option<Said> {
    let platform = |bench: &Workbench| {
        DevicePlatform::new(Box::new(bench.device(std::slice::from_ref(mutant))), Overrides::default())
    };
    let cases = bed.calls.get(mutant.op.as_str())?;
    let calls: Vec<Call> = cases.iter().map(|(c, _)| c.call.clone()).collect();
    let mut faulty = platform(&benches[0]);
    let observed = replay(&mut faulty, &calls)?;
    let (at, (case, _)) = cases.iter().enumerate().find(|(i, (c, _))| c.fails(&observed[*i]))?;
    let again = replay(&mut faulty, &calls[at..=at])?.pop()?;
    let mut checker = platform(&benches[1]);
    replay(&mut checker, &calls[at..=at]);
    let findings: Vec<DeviceFinding> = checker
        .take_findings()
        .into_iter()
        .map(|f| DeviceFinding { kind: f.kind.name().into(), message: f.message, line: f.line })
        .collect();
    let earlier: Vec<Earlier<'_>> = (0..at)
        .rev()
        .map(|i| Earlier {
            name: &cases[i].0.name,
            call: &cases[i].0.call,
            observed: &observed[i],
            recorded: &cases[i].1,
            made: false,
        })
        .collect();
    let repeats = [observed[at].clone(), again];
    let evidence = Evidence { findings: &findings, ..case.evidence(&repeats, &earlier) };
    let start = Instant::now();
    let said = explain(&evidence).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    let unchecked = explain(&Evidence { findings: &[], ..evidence }).unwrap();
    Some(Said { said, unchecked, seconds, case: case.name.clone() })
}

#[test]
fn causes_of_planted_faults() {
    let other = std::env::var("MODEL").ok();
    let path = other.as_ref().and_then(|name| tapml_testing::extra_model(name));
    let (name, path) = (other.unwrap_or("llama".into()), path.unwrap_or(tapml_testing::model("llama")));
    let checkpoint = Checkpoint::open(path).unwrap();
    let fused = fuse(checkpoint.model().graph()).unwrap();
    let model = checkpoint.model().with_graph(fused).unwrap();
    let bed = Fixture::from_model(&model);
    let emulator = |query: &str| {
        Workbench::new(Box::new(Emulator::new(EmulatorOptions::parse(query).unwrap()).unwrap()))
    };
    let benches = [emulator(""), emulator("check=all")];
    let catalogue = Catalogue::generate(&name, model.graph(), benches[0].info()).unwrap();
    let step: usize = std::env::var("EVERY").ok().and_then(|v| v.parse().ok()).unwrap_or(47);
    let only = std::env::var("ONLY").unwrap_or_default();
    let verbose = std::env::var_os("VERBOSE").is_some();
    let (mut all, mut right, mut unknown, mut sure, mut lies, mut slowest) = (0, 0, 0, 0, Vec::new(), 0.0f64);
    let mut by_op: BTreeMap<String, (usize, f64)> = BTreeMap::new();
    let mut table: BTreeMap<String, [usize; 4]> = BTreeMap::new();
    let mutants = catalogue.mutants.iter().filter(|m| !m.is_between() && m.id.contains(&only));
    for mutant in mutants.step_by(step) {
        let Some(found) = examine(&bed, &benches, mutant) else { continue };
        let Said { said, unchecked, seconds, case } = found;
        let causes =
            RIGHT.iter().find(|(name, _)| *name == mutant.operator).map(|(_, causes)| *causes).unwrap();
        let hit = causes.contains(&said.cause.name());
        all += 1;
        right += usize::from(hit);
        unknown += usize::from(said.cause == Cause::Unknown);
        slowest = slowest.max(seconds);
        let entry = by_op.entry(mutant.op.clone()).or_default();
        (entry.0, entry.1) = (entry.0 + 1, entry.1 + seconds);
        let row = table.entry(mutant.operator.clone()).or_default();
        row[0] += 1;
        row[1] += usize::from(hit);
        row[2] += usize::from(said.certain);
        row[3] += usize::from(said.certain && !hit);
        if said.certain && !hit {
            lies.push(format!("{}: {}", mutant.id, brief(&said)));
        }
        if unchecked.certain && !causes.contains(&unchecked.cause.name()) {
            lies.push(format!("{}, unchecked: {}", mutant.id, brief(&unchecked)));
        }
        sure += usize::from(unchecked.certain);
        if verbose && (!hit || only.len() > 6) {
            let sign = if hit {
                "="
            } else if said.certain {
                "!!"
            } else {
                "x"
            };
            println!(
                "{sign} {} [{seconds:.2}s] {case}\n{}\n   {}\n   {}",
                mutant.id,
                mutant.diff,
                brief(&said),
                said.error_map.text
            );
        }
    }
    for (operator, [all, right, certain, lies]) in &table {
        println!("{operator:20} {right:4} of {all:4} right, {certain:4} certain, {lies} of them wrong");
    }
    let stated = all - unknown;
    println!("{right} of {stated} stated causes right, {unknown} unknown");
    println!("{right} of {all} right ({:.1} %), slowest {slowest:.2} s", 100.0 * right as f64 / all as f64);
    println!("{sure} certain where no device checks; {by_op:.1?}");
    assert!(all >= 12 || !only.is_empty(), "{all} mutants show");
    assert!(lies.is_empty(), "{lies:#?}");
    // What is not known is said to be unknown; what is stated is right.
    assert!(right * 10 >= stated * 8 || !only.is_empty(), "{right} of {stated} stated");
    assert!(right * 2 >= all || !only.is_empty(), "{right} of {all}");
}
