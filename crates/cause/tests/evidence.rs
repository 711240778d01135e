//! What more than one output tells: earlier calls, repeats, reports of a checking device, memory that nobody wrote.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Case, brief};
use tapml_cause::{Cause, DeviceFinding, Earlier, Evidence, Explanation, explain};
use tapml_exec::UNWRITTEN;
use tapml_graph::op::{OPS, Sample};
use tapml_graph::{Bytes, Symbols, Tensor};
use tapml_reference::run_node;

fn sample(op: &str, name: &str) -> Sample {
    let info = OPS.iter().find(|info| info.name == op).unwrap();
    (info.samples)().into_iter().find(|s| s.name == name).unwrap()
}

/// What is said of `observed`, with `earlier` as the call before.
fn explain_after(case: &Case, earlier: &Case, observed: Vec<Tensor>) -> Explanation {
    let before = Earlier {
        name: "the call before",
        call: &earlier.call,
        observed: &earlier.correct,
        recorded: &earlier.correct,
        made: false,
    };
    explain(&case.evidence(&[observed], &[before])).unwrap()
}

#[test]
fn results_of_an_earlier_call_are_stale() {
    for (op, name) in [("linear", "prefill"), ("rms_norm", "prefill"), ("attention", "prefill, grouped")] {
        let [earlier, case] = [1, 2].map(|seed| Case::of_sample(&sample(op, name), seed));
        let said = explain_after(&case, &earlier, earlier.correct.clone());
        assert!(said.cause == Cause::StaleData && said.certain, "{op}: {}", brief(&said));
        assert!(said.evidence.contains("the call before"), "{}", said.evidence);
    }
}

#[test]
fn an_input_of_an_earlier_call_is_stale_or_the_state_of_another_layer() {
    for (op, name, input, cause) in
        [("add", "prefill", 1, Cause::StaleData), ("wkv", "prefill", 5, Cause::WrongLayerState)]
    {
        let [earlier, case] = [1, 2].map(|seed| Case::of_sample(&sample(op, name), seed));
        let mut inputs = case.call.inputs.clone();
        inputs[input] = earlier.call.inputs[input].clone();
        let dtypes: Vec<_> = case.call.output_types.iter().map(|t| t.dtype).collect();
        let observed = run_node(&case.call.op, &case.call.symbols, &inputs, &dtypes).unwrap();
        let said = explain_after(&case, &earlier, observed);
        assert!(said.cause == cause, "{op}: {}", brief(&said));
    }
}

#[test]
fn a_position_of_an_earlier_step_is_a_wrong_symbol_and_one_beside_is_a_shift() {
    let case = Case::of_sample(&sample("rope_angles", "decode"), 1);
    for (p, cause) in [(17, Cause::WrongSymbol), (501, Cause::PositionShifted)] {
        let mut before = sample("rope_angles", "decode");
        before.symbols = Symbols::np(1, p);
        let earlier = Case::of_sample(&before, 1);
        let call = Earlier {
            name: "the call before",
            call: &earlier.call,
            observed: &[],
            recorded: &[],
            made: false,
        };
        let said = explain(&case.evidence(std::slice::from_ref(&earlier.correct), &[call])).unwrap();
        assert!(said.cause == cause && said.certain, "{p}: {}", brief(&said));
    }
}

#[test]
fn repeats_that_differ_are_a_race() {
    let case = Case::of_sample(&sample("linear", "prefill"), 1);
    let noisy = |seed: u64| {
        let mut random = fastrand::Rng::with_seed(seed);
        case.change_outputs(|values, _| values.iter_mut().for_each(|v| *v += 0.1 * random.f64()))
    };
    let said = explain(&case.evidence(&[noisy(1), noisy(2)], &[])).unwrap();
    assert!(said.cause == Cause::Race, "{}", brief(&said));
}

#[test]
fn a_report_is_certain_where_no_value_is_wrong() {
    let case = Case::of_sample(&sample("linear", "prefill"), 1);
    let finding = DeviceFinding {
        kind: "data race within a workgroup".into(),
        message: "invocation 1 reads word 3 of `tile`".into(),
        line: 12,
    };
    let observed = [case.correct.clone()];
    let evidence = Evidence { findings: std::slice::from_ref(&finding), ..case.evidence(&observed, &[]) };
    let said = explain(&evidence).unwrap();
    assert!(said.cause == Cause::Race && said.certain, "{}", brief(&said));
    assert!(said.evidence.contains("line 12"), "{}", said.evidence);
    // Wrong values may have another reason, of which a race is but a consequence.
    let shifted = [case.change_outputs(|values, _| values.rotate_left(1))];
    let evidence = Evidence { findings: &[finding], ..case.evidence(&shifted, &[]) };
    let said = explain(&evidence).unwrap();
    assert!(said.cause == Cause::OffByOne, "{}", brief(&said));
}

/// An index that a device sees just outside is off by one if the first row is wrong, too; what grows is a distance.
#[test]
fn an_index_that_leads_outside_further_on_is_a_wrong_distance() {
    let case = Case::of_sample(&sample("linear", "prefill"), 1);
    let finding = DeviceFinding {
        kind: "out of bounds".into(),
        message: "index 40 of 40 elements in `w`".into(),
        line: 12,
    };
    let said = |from: usize, seeds: &[u64]| {
        let noisy = |&seed: &u64| {
            let mut random = fastrand::Rng::with_seed(seed);
            case.change_outputs(|values, width| {
                values.iter_mut().skip(from * width).for_each(|v| *v += 9.0 * random.f64() - 4.0)
            })
        };
        let observed: Vec<Vec<Tensor>> = seeds.iter().map(noisy).collect();
        let evidence = Evidence { findings: std::slice::from_ref(&finding), ..case.evidence(&observed, &[]) };
        explain(&evidence).unwrap()
    };
    for (from, seeds, cause) in [
        (1, &[5u64][..], Cause::WrongStride),
        (0, &[5], Cause::OffByOne),
        // Repeats that differ beside an index that leads outside are not a race of their own.
        (1, &[5, 6], Cause::WrongStride),
    ] {
        let said = said(from, seeds);
        assert!(said.cause == cause && !said.certain, "{from}: {}", brief(&said));
    }
}

/// The first output of a call with a word in some places.
fn leave_word(case: &Case, left: &dyn Fn(usize) -> bool, word: u32) -> Vec<Tensor> {
    let words = case.correct[0].to_f32();
    let words = words.iter().enumerate().map(|(i, v)| if left(i) { word } else { v.to_bits() });
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    vec![Tensor::new(case.correct[0].dtype(), case.correct[0].shape().to_vec(), Bytes::new(bytes)).unwrap()]
}

/// What leaves out just these elements is sometimes one fault only: each row says what else does so.
#[test]
fn what_is_left_out_is_certain_only_where_nothing_else_leaves_it_out() {
    let case = Case::of_sample(&sample("rms_norm", "prefill"), 1);
    let rows = [
        (0..7 * 320, Cause::NotWritten, false, "written elsewhere"),
        (4 * 320..7 * 320, Cause::TailDropped, false, "workgroups that share their places"),
        (6 * 320..7 * 320, Cause::TailDropped, false, "neighbours exchanged, of an odd number of rows"),
        (2048..2240, Cause::TailDropped, false, "two or three workgroups of 1024 that share their places"),
        (2230..2240, Cause::TailDropped, true, ""),
        (0..2048, Cause::NotWritten, false, "workgroups that are not launched"),
        (2224..2240, Cause::TailDropped, true, ""),
        (2112..2240, Cause::TailDropped, false, "tiles of 16 that are counted with a factor of 17"),
    ];
    for (range, cause, certain, otherwise) in rows {
        let said = case.explain(leave_word(&case, &|i| range.contains(&i), UNWRITTEN[0]));
        assert_eq!((said.cause, said.certain), (cause, certain), "{otherwise}: {}", brief(&said));
    }
    let said = case.explain(leave_word(&case, &|i| i % 320 == 0, UNWRITTEN[0]));
    assert!(said.cause == Cause::OffByOne && said.certain, "{}", brief(&said));
    // Rows of a cache may stand in another place of it.
    let case = Case::of_sample(&sample("append", "decode"), 1);
    let all = case.correct[0].len();
    let said = case.explain(leave_word(&case, &|i| i + 10 >= all, UNWRITTEN[0]));
    assert!(said.cause == Cause::TailDropped && !said.certain, "{}", brief(&said));
}

#[test]
fn results_that_are_the_inputs_may_lack_a_factor_as_well() {
    let case = Case::of_sample(&sample("gelu", "prefill"), 1);
    let input = case.call.inputs[0].to_f32().into_owned();
    let output = Tensor::from_f32(case.correct[0].shape().to_vec(), input).unwrap();
    let said = case.explain(vec![output]);
    assert!(said.cause != Cause::NotWritten || !said.certain, "{}", brief(&said));
}

#[test]
fn memory_that_nobody_wrote_is_known_by_its_bits() {
    let case = Case::of_sample(&sample("rms_norm", "prefill"), 1);
    let spoil = |some: &dyn Fn(usize) -> bool, word: u32| leave_word(&case, some, word);
    let [word, _] = UNWRITTEN;
    for (some, cause) in [
        (&(|_| true) as &dyn Fn(usize) -> bool, Cause::NotWritten),
        (&|i| i >= 6 * 320, Cause::TailDropped),
        (&|i| i % 320 >= 316, Cause::TailDropped),
        (&|i| i == 0, Cause::OffByOne),
    ] {
        let said = case.explain(spoil(some, word));
        assert!(said.cause == cause, "{cause}: {}", brief(&said));
        let usual = case.explain(spoil(some, f32::NAN.to_bits()));
        assert!(!usual.certain, "any NaN may have been computed: {}", brief(&usual));
    }
}

#[test]
fn pictures_are_small_and_say_where() {
    let case = Case::of_sample(&sample("linear", "one more than a tile"), 1);
    let said = case.explain(case.change_outputs(|values, width| {
        values.iter_mut().enumerate().filter(|(i, _)| i % width % 4 == 1).for_each(|(_, v)| *v += 1.0);
    }));
    let picture = &said.error_map;
    assert!(picture.text.contains("in columns 1 of each 4"), "{}", picture.text);
    assert_eq!(picture.grid.shape, [65, 65]);
    assert!(picture.grid.cells[0] <= 32 && picture.grid.cells[1] <= 64);
    assert_eq!(picture.grid.ratios.len(), picture.grid.cells[0] * picture.grid.cells[1]);
    assert!(
        picture.drawing.lines().count() <= 16 && picture.drawing.lines().all(|l| l.chars().count() <= 64)
    );
    let json = serde_json::to_string(&said).unwrap();
    assert_eq!(serde_json::from_str::<Explanation>(&json).unwrap(), said);
}

#[test]
fn contradicting_evidence_is_an_error() {
    let case = Case::of_sample(&sample("linear", "prefill"), 1);
    let other = Case::of_sample(&sample("linear", "decode"), 1);
    let error = explain(&case.evidence(std::slice::from_ref(&other.correct), &[])).unwrap_err();
    assert!(error.to_string().contains("expected"), "{error}");
    assert!(explain(&case.evidence(&[], &[])).is_err());
}
