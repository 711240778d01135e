//! Ranks by the project's verdicts: logits within what the allowed errors explain, sums of ranks judged as calls, and a wrong
//! sum found.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Twist, Twisted, decode, identity, prompts, sparse, toy};
use std::path::Path;
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_exec::{
    CpuPlatform, DevicePlatform, Hybrid, HybridSide, Overrides, Phase, Platform, RanksPlatform,
};
use tapml_graph::{Model, NodeId, Symbols};
use tapml_import::{Checkpoint, ImportOptions};
use tapml_migrate::report::CheckReport;
use tapml_migrate::suite::Suite;
use tapml_migrate::verdict::Precision;
use tapml_migrate::{
    CarveOptions, CheckOptions, MovementLimits, Oracles, PromptInput, Quiet, Stop, carve, check, check_model,
};

fn carve_model(model: &Model, out: &Path, prompts: &[PromptInput]) -> Suite {
    let options =
        CarveOptions { out, overwrite: false, steps: 4, self_contained: false, context: 64, decode: &decode };
    carve(&mut CpuPlatform::new(), model, identity(), prompts, &options, &Quiet, &Stop::new()).unwrap();
    Suite::open(out).unwrap()
}

/// The model on ranks of the processor, against one: every logit by the limits that follow from the declared precision.
fn check_ranks(model: &Model, ranks: usize, prompts: &[PromptInput]) {
    let dir = tempfile::tempdir().unwrap();
    let suite = carve_model(model, &dir.path().join("suite"), prompts);
    let (graph, cpu) = (model.graph(), CpuPlatform::new());
    let precision = |id: NodeId, symbols: &Symbols| {
        let node = graph.node(id);
        let choice = cpu.kernel_for(&node.op, &graph.input_types(node), Phase::of_run(symbols))?;
        let terms = choice.accumulate.chain.eval(symbols)? as usize;
        Ok(Some(Precision { accumulate: choice.accumulate.dtype, terms }))
    };
    let limits = MovementLimits::measure(&suite, model, &Oracles::new(0), &precision, &Stop::new()).unwrap();
    let rank = || Box::new(CpuPlatform::new()) as Box<dyn Platform>;
    let mut target = RanksPlatform::new((0..ranks).map(|_| rank()).collect()).unwrap();
    let place = |_: &tapml_graph::Node| HybridSide::Target;
    let capacity = Symbols::np(64, 64);
    let mut hybrid = Hybrid::new(model, &mut CpuPlatform::new(), &mut target, &place, &capacity).unwrap();
    let found = check_model(&mut hybrid, &suite, model, &limits, &Quiet, &Stop::new()).unwrap();
    assert!(found.passed, "{ranks} ranks: {}", found.reason());
    assert_eq!(found.text_equal, Some(true), "{ranks} ranks");
    assert!(found.positions > 0 && found.max_logit_error > 0.0, "sums in another order differ: {found:?}");
}

#[test]
fn logits_of_two_and_four_ranks_stay_within_the_verdict() {
    for model in [toy(1), sparse(2)] {
        for ranks in [2, 4] {
            check_ranks(&model, ranks, &prompts());
        }
    }
}

#[test]
fn logits_of_a_trained_model_on_ranks_stay_within_the_verdict() {
    let checkpoint =
        Checkpoint::open_with(tapml_testing::model("llama_draft"), &ImportOptions::default()).unwrap();
    for ranks in [2, 4] {
        check_ranks(checkpoint.model(), ranks, &prompts());
    }
}

/// All calls of the graph of two ranks.
fn check_calls(platform: &mut dyn Platform) -> CheckReport {
    let dir = tempfile::tempdir().unwrap();
    let model = toy(3);
    let model = model.with_graph(model.graph().shard(2).unwrap()).unwrap();
    let suite = carve_model(&model, &dir.path().join("suite"), &prompts());
    let replayed = suite.model(Some(&model)).unwrap();
    let (oracles, options) = (Oracles::new(0), CheckOptions::default());
    check(&suite, &replayed, platform, &oracles, &options, &Quiet, &Stop::new()).unwrap().report
}

#[test]
fn sums_of_ranks_are_calls_that_a_device_is_judged_by() {
    let device = Box::new(Emulator::new(EmulatorOptions::default()).unwrap());
    let report = check_calls(&mut DevicePlatform::new(device, Overrides::default()));
    let failures: Vec<_> = report.ops.iter().flat_map(|op| &op.failures).collect();
    assert!(report.passes(), "{failures:#?}");
    let cases = |name: &str| report.ops.iter().find(|op| op.op == name).map(|op| op.cases);
    // Two layers with two sums each, and the logits, in two runs of a prompt and four steps.
    assert_eq!((cases("all_reduce"), cases("all_gather")), (Some(2 * 2 * 2 * 5), Some(2 * 5)));
}

#[test]
fn a_wrong_sum_of_ranks_is_found() {
    let report = check_calls(&mut Twisted::from_twists(&[("all_reduce", Twist::Scale(1.001))]));
    let failed: Vec<&str> = report.ops.iter().filter(|op| !op.passes()).map(|op| op.op.as_str()).collect();
    assert_eq!(failed, ["all_reduce"]);
}
