//! Planted faults shrink to a few elements, and what is left is right: it still fails, and the built-in kernel passes it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{FAULTS, Fault, Suites};
use std::time::Duration;
use tapml_exec::Platform;
use tapml_migrate::{Oracles, Stop};
use tapml_reduce::{Failure, ReduceOptions, Reduced, reduce};

fn options() -> ReduceOptions {
    ReduceOptions { limit: Duration::from_secs(600), simplify: true }
}

fn reduce_fault(suites: &mut Suites, fault: &Fault) -> Reduced {
    let mut platform = fault.platform(&fault.text());
    let (_, call, recorded) = suites.first_failing(fault, &mut platform);
    reduce(call, &recorded, &mut platform, &Oracles::new(0), &options(), &Stop::new())
        .unwrap()
        .expect("it fails")
}

#[test]
fn planted_faults_shrink_to_a_few_elements() {
    let mut suites = Suites::default();
    let mut sizes = Vec::new();
    for fault in FAULTS {
        let found = reduce_fault(&mut suites, fault);
        let (before, after) = (found.whole.elements(), found.smallest.elements());
        let shapes: Vec<_> = found.smallest.call.inputs.iter().map(|t| t.shape().to_vec()).collect();
        println!(
            "{:16} {:44} {before:8} -> {after:5}  {:5} trials {:6.2} s  simpler {:3}  {}{shapes:?} {:?} {}",
            fault.op,
            fault.name,
            found.trials,
            found.seconds,
            found.simplified.as_ref().map_or(0, |s| s.changed),
            if found.minimal { "" } else { "not proven " },
            found.smallest.call.symbols,
            found.smallest.call.op.attributes(),
        );
        assert!(found.minimal, "{}: no proven minimum", fault.name);
        assert!(found.stability.steady(), "{}: {:?}", fault.name, found.stability);
        right_kernels_pass(fault, &found);
        sizes.push(after);
    }
    sizes.sort_unstable();
    let median = sizes[sizes.len() / 2];
    assert!(median <= 64, "the median is {median}: {sizes:?}");
}

/// The right kernel passes the smallest call, with real and with simpler values.
fn right_kernels_pass(fault: &Fault, found: &Reduced) {
    let mut platform = fault.platform(&fault.right());
    let mut calls = vec![&found.smallest];
    calls.extend(found.simplified.as_ref().map(|s| &s.specimen));
    for specimen in calls {
        let outputs = outputs(&mut platform, &specimen.call);
        let mut call = specimen.call.clone();
        let names = specimen.is_weight.iter().enumerate().map(|(i, w)| w.then(|| format!("reduced {i}")));
        call.weights = names.collect();
        let again =
            reduce(call, &outputs, &mut platform, &Oracles::new(0), &options(), &Stop::new()).unwrap();
        assert!(again.is_none(), "{}: the right kernel fails the reduced call", fault.name);
    }
}

fn outputs(platform: &mut dyn Platform, call: &tapml_exec::Call) -> Vec<tapml_graph::Tensor> {
    let mut outputs = None;
    platform.replay(std::slice::from_ref(call), &mut |_, result| outputs = Some(result)).unwrap();
    outputs.unwrap().unwrap()
}

#[test]
fn a_kernel_that_is_refused_stays_refused() {
    let fault = &FAULTS[0];
    let mut suites = Suites::default();
    let mut platform = fault.platform(&fault.text());
    let (_, call, recorded) = suites.first_failing(fault, &mut platform);
    // Wrong only once the constants are known, so that it is refused where it is to run.
    let text = fault.right().replace("@compute", "override N: u32 = 1u / (K - K);\n@compute");
    let text = text.replace("var squares = 0.0;", "var squares = f32(N);");
    let mut platform = fault.platform(&text);
    let found =
        reduce(call, &recorded, &mut platform, &Oracles::new(0), &options(), &Stop::new()).unwrap().unwrap();
    assert!(matches!(found.failure, Failure::Error(_)), "{:?}", found.failure);
    assert_eq!(found.smallest.elements(), 2, "{:?}", found.smallest.call);
}
