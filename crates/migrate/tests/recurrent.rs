//! A model with states of a fixed shape: they are inputs and outputs of the recorded calls, and the model moves whole.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../exec/tests/common/recurrent.rs"]
mod recurrent;

use common::{decode, identity};
use recurrent::recurrent;
use std::path::Path;
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_exec::{CpuPlatform, DevicePlatform, Overrides};
use tapml_graph::{DType, Model, Origin};
use tapml_kernels::{BuiltIn, any_device};
use tapml_migrate::report::Outcome;
use tapml_migrate::suite::{Slot, Suite};
use tapml_migrate::{
    CarveOptions, CheckOptions, MigrateOptions, Oracles, PromptInput, Quiet, Stop, carve, check, migrate,
};

const STEPS: u32 = 3;

fn prompts() -> Vec<PromptInput> {
    let prompt =
        |ids: &[u32]| PromptInput { text: String::new(), ids: ids.to_vec(), image: None, most_steps: None };
    vec![prompt(&[3, 14, 15, 9, 26, 5, 7]), prompt(&[2])]
}

fn carve_model(model: &Model, out: &Path) -> Suite {
    let options = CarveOptions {
        out,
        overwrite: false,
        steps: STEPS,
        self_contained: false,
        context: 64,
        decode: &decode,
    };
    carve(&mut CpuPlatform::new(), model, identity(), &prompts(), &options, &Quiet, &Stop::new()).unwrap();
    Suite::open(out).unwrap()
}

fn emulator(overrides: Overrides) -> DevicePlatform {
    DevicePlatform::new(Box::new(Emulator::new(EmulatorOptions::default()).unwrap()), overrides)
}

#[test]
fn calls_hold_the_state_before_and_after_and_evaluate_to_what_was_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let model = recurrent(DType::F32);
    let suite = carve_model(&model, &dir.path().join("suite"));
    let replay = suite.model(Some(&model)).unwrap();
    for case in suite.cases() {
        let (call, expected) = suite.call(case, &replay).unwrap();
        call.check().unwrap();
        let dtypes: Vec<DType> = call.output_types.iter().map(|t| t.dtype).collect();
        let found = tapml_reference::run_node(&call.op, &call.symbols, &call.inputs, &dtypes).unwrap();
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.bytes()[..], expected.bytes()[..], "{}", suite.case_id(case));
        }
    }
    let graph = suite.graph();
    assert_eq!(graph.states().len(), 5);
    for (i, state) in graph.states().iter().enumerate() {
        assert!(matches!(graph.value(state.input).origin, Origin::State(_)) && !state.grows(graph));
        for pair in suite.frames().windows(2) {
            let [before, next] = pair else { panic!("a window of two") };
            match next.step {
                // Each prompt begins with zeros.
                0 => {
                    let Slot::Stored(index) = next.states[i] else { panic!("{}", state.name) };
                    assert_eq!(before.states[i] == next.states[i], before.step == 0, "{index}");
                }
                // What a step leaves is what the next one finds, stored once.
                _ => assert_eq!(next.states[i], before.values[state.output.0 as usize], "{}", state.name),
            }
        }
        let first = suite.value(0, state.input).unwrap();
        assert!(first.to_f64().iter().all(|&v| v == 0.0), "{}", state.name);
        let last = suite.value(suite.frames().len() - 1, state.input).unwrap();
        assert!(last.to_f64().iter().any(|&v| v != 0.0), "{}", state.name);
    }
}

#[test]
fn the_model_moves_whole() {
    for dtype in [DType::F32, DType::F16] {
        let dir = tempfile::tempdir().unwrap();
        let model = recurrent(dtype);
        let options = MigrateOptions {
            ledger: dir.path(),
            steps: STEPS,
            context: 64,
            import_seconds: 0.0,
            decode: &decode,
        };
        let (mut source, mut target) = (CpuPlatform::new(), emulator(Overrides::default()));
        let (quiet, stop) = (Quiet, Stop::new());
        let done = migrate(&model, identity(), &prompts(), &mut source, &mut target, &options, &quiet, &stop)
            .unwrap();
        let report = done.report;
        assert_eq!(report.verdict, Outcome::Accepted, "{dtype}: {:?}", report.ops);
        assert_eq!(report.coverage.calls, report.coverage.checked, "{dtype}");
    }
}

#[test]
fn kernels_that_keep_a_wrong_state_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let model = recurrent(DType::F32);
    let suite = carve_model(&model, &dir.path().join("suite"));
    let model = suite.model(Some(&model)).unwrap();
    let oracles = Oracles::new(1 << 26);
    let cases = [
        ("wkv", "start + row * HEAD_DIM] = s[", "start + row * HEAD_DIM] = 1.0005 * s["),
        ("wkv7", "fma(decay[quad], s[i], added)", "fma(decay[quad], s[i], added * 1.0005)"),
        (
            "selective_scan",
            "if inside && row < STATE && after < SLOTS",
            "if inside && row + 1u < STATE && after < SLOTS",
        ),
    ];
    for (op, old, new) in cases {
        let built_in = BuiltIn::find(&format!("{op}/portable"), DType::F32, &any_device()).unwrap();
        let text = built_in.desc().unwrap().source.text.clone();
        assert!(text.contains(old), "{op}: {old}");
        let own = dir.path().join(format!("{op}.wgsl"));
        let only = CheckOptions { ops: vec![op.into()], ..CheckOptions::default() };
        for (text, right) in [(text.clone(), true), (text.replacen(old, new, 1), false)] {
            std::fs::write(&own, text).unwrap();
            let mut overrides = Overrides::default();
            overrides.add(&format!("{op}={}", own.display())).unwrap();
            let (mut platform, stop) = (emulator(overrides), Stop::new());
            let found = check(&suite, &model, &mut platform, &oracles, &only, &Quiet, &stop).unwrap();
            assert_eq!(found.report.ops[0].passes(), right, "{op}: {:?}", found.report.ops[0]);
        }
    }
}
