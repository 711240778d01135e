//! Faults of a program as a whole and of the order of its steps: one report each, with the right cause.
#![allow(clippy::unwrap_used)]

mod common;

use common::faulty::{Faulty, Wrong};
use common::{
    carved_model, change_kernel, diagnose_device, diagnosed_with, emulator, only_fault, overrides, tiny,
};
use std::collections::HashMap;
use tapml_diagnose::{DiagnoseOptions, Diagnosis, Fault, FaultKind};
use tapml_exec::Overrides;
use tapml_graph::op::{Embedding, LastRow, Linear};
use tapml_graph::{Builder, DType, Dim, Model, Symbol, Tensor, TensorType};

/// One fault of the whole program, which ends the search.
fn whole(found: &Diagnosis, cause: &str) -> Fault {
    let fault = only_fault(found);
    assert_eq!(fault.cause, cause, "{}", fault.evidence);
    assert!(found.notes.iter().any(|n| n.contains("whole program")), "{:?}", found.notes);
    fault.clone()
}

fn layer(part: &str) -> String {
    format!("model.layers.0.self_attn.{part}")
}

#[test]
fn inputs_that_are_uploaded_once() {
    let fault =
        whole(&diagnosed_with(&tiny("llama_tiny_plain"), Wrong::Writes("ids".into())), "missing_copy");
    assert!(fault.certain && fault.evidence.contains("of the step before"), "{}", fault.evidence);
    assert!(fault.first_bad_case.starts_with("p0.s1."), "{}", fault.first_bad_case);
}

#[test]
fn results_that_pass_through_a_narrow_type() {
    let fault = whole(&diagnosed_with(&tiny("llama_tiny_plain"), Wrong::Results), "wrong_cast");
    assert!(fault.certain && fault.evidence.contains("bf16"), "{}", fault.evidence);
}

/// Token ids that bf16 does not hold.
#[test]
fn inputs_that_pass_through_a_narrow_type() {
    let (width, vocab) = (8usize, 400usize);
    let mut b = Builder::new("wide");
    let ids = b.input("ids", TensorType::new(DType::U32, [Dim::symbol(Symbol::N)])).unwrap();
    let table = b.weight("embed.weight", TensorType::new(DType::F32, [vocab, width])).unwrap();
    let x = b.node("embed", Embedding { dtype: DType::F32 }, &[ids, table]).unwrap();
    let last = b.node("last", LastRow {}, &[x]).unwrap();
    let logits = b.node("head", Linear::default(), &[last, table]).unwrap();
    b.output("logits", logits);
    let values = (0..vocab * width).map(|i| ((i * 37 % 101) as f32 - 50.0) / 40.0).collect();
    let table = Tensor::from_f32(vec![vocab, width], values).unwrap();
    let weights = HashMap::from([("embed.weight".to_string(), table)]);
    let carved = carved_model(Model::new(b.finish().unwrap(), weights).unwrap(), &[&[3, 301], &[387]], 1);
    let fault = whole(&diagnosed_with(&carved, Wrong::Input("ids".into())), "wrong_cast");
    assert!(fault.certain && fault.evidence.contains("`ids`"), "{}", fault.evidence);
}

#[test]
fn sizes_and_positions_that_are_not_those_of_the_step() {
    let carved = tiny("llama_tiny_plain");
    // Each program keeps its first block; only the first program has one; a new text goes on where the last one ended.
    let certain = [(Wrong::Writes("symbols".into()), true), (Wrong::Once("symbols".into()), false)];
    for (wrong, certain) in certain.into_iter().chain([(Wrong::Position, true)]) {
        let fault = whole(&diagnosed_with(&carved, wrong.clone()), "wrong_symbol");
        assert_eq!(fault.certain, certain, "{wrong:?}: {}", fault.evidence);
    }
}

#[test]
fn a_step_that_comes_after_its_reader() {
    let carved = tiny("llama_tiny_plain");
    for (node, quiet) in [("rope_q", false), ("q_proj", false), ("v_proj", true), ("o_proj", true)] {
        let wrong = Wrong::Late(layer(node));
        let device =
            if quiet { Faulty::quiet(emulator(""), wrong) } else { Faulty::new(emulator(""), wrong) };
        let options = DiagnoseOptions::default();
        let found = diagnose_device(&carved, Box::new(device), &overrides(&[]), &options);
        let fault = only_fault(&found);
        assert_eq!((fault.cause.as_str(), fault.certain), ("missing_dependency", true), "{}", fault.evidence);
        assert!(fault.nodes.contains(&layer(node)), "{:?}", fault.nodes);
    }
}

#[test]
fn a_right_device_that_does_not_keep_the_bits_of_a_nan_has_no_faults() {
    let device = Box::new(Faulty::quiet(emulator(""), Wrong::Dispatch("none".into())));
    let options = DiagnoseOptions::default();
    let found = diagnose_device(&tiny("llama_tiny_plain"), device, &overrides(&[]), &options);
    assert!(found.faults.is_empty(), "{:#?}", found.faults);
}

#[test]
fn the_cache_of_another_layer() {
    let carved = tiny("llama_tiny_plain");
    let node = |layer: usize, part: &str| format!("model.layers.{layer}.self_attn.{part}");
    for (part, binding) in [("attention", 1), ("attention", 2), ("k_cache", 1)] {
        let found = diagnosed_with(&carved, Wrong::Borrow(node(1, part), node(0, part), binding));
        let fault = only_fault(&found);
        assert_eq!((fault.cause.as_str(), fault.certain), ("wrong_layer_state", true), "{}", fault.evidence);
        assert!(fault.nodes.contains(&node(1, part)), "{:?}", fault.nodes);
    }
}

/// Nodes of a faulty operator are on the source when the whole model is run, and with them what is between them.
#[test]
fn a_fault_between_operators_beside_a_faulty_one() {
    let carved = tiny("llama_tiny_plain");
    let mut wrong = Overrides::default();
    let rope = change_kernel("rope", &[("b * cosine + a * sine", "b * cosine - a * sine")]);
    wrong.add_text("rope", std::path::Path::new("rope.wgsl"), &rope).unwrap();
    let between = [
        (Wrong::Dispatch(layer("rope_q")), "not_written", layer("rope_q")),
        (Wrong::Late(layer("rope_q")), "missing_dependency", layer("rope_q")),
        (Wrong::Writes("ids".into()), "missing_copy", "model.embed_tokens".into()),
    ];
    for (fault, cause, node) in between {
        let device = Box::new(Faulty::new(emulator(""), fault.clone()));
        let found = diagnose_device(&carved, device, &wrong, &DiagnoseOptions::default());
        let told: Vec<(&str, FaultKind, &str)> =
            found.faults.iter().map(|f| (f.op.as_str(), f.kind, f.cause.as_str())).collect();
        assert_eq!(told.len(), 2, "{fault:?}: {told:?}");
        assert_eq!((told[0].0, told[0].1), ("rope", FaultKind::Operator));
        assert_eq!(
            (told[1].1, told[1].2),
            (FaultKind::Between, cause),
            "{fault:?}: {}",
            found.faults[1].evidence
        );
        assert!(found.faults[1].nodes.contains(&node), "{:?}", found.faults[1].nodes);
    }
}

/// With a faulty operator's nodes on the source, what one part of the program leaves for another comes from outside, too.
#[test]
fn values_that_cross_between_parts_of_the_program_through_a_narrow_type() {
    let wrong = overrides(&[("rope", &[("b * cosine + a * sine", "b * cosine - a * sine")])]);
    let device = Box::new(Faulty::new(emulator(""), Wrong::Activations));
    let found = diagnose_device(&tiny("llama_tiny_plain"), device, &wrong, &DiagnoseOptions::default());
    let told: Vec<_> = found.faults.iter().map(|f| (f.op.as_str(), f.kind, f.cause.as_str())).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!((told[0].0, told[0].1), ("rope", FaultKind::Operator));
    assert_eq!((told[1].1, told[1].2), (FaultKind::Between, "wrong_cast"), "{}", found.faults[1].evidence);
    assert!(found.notes.iter().any(|n| n.contains("whole program")), "{:?}", found.notes);
}

/// Of the nodes that know a position only attention is left to tell, and it is wrong by itself; what it reads behind its
/// rows is what the last text left there.
#[test]
fn a_text_that_goes_on_where_the_last_one_ended_beside_faulty_kernels() {
    let wrong = overrides(&[
        ("append", &[("CACHE_P * symbols.p", "0u * symbols.p")]),
        ("rope_angles", &[("if e < count {", "if e < count && GIVEN == 7u {")]),
        ("attention", &[("let score = SCALE *", "let score = 0.5 * SCALE *")]),
    ]);
    let device = Box::new(Faulty::new(emulator(""), Wrong::Position));
    let found = diagnose_device(&tiny("llama_tiny_plain"), device, &wrong, &DiagnoseOptions::default());
    let told: Vec<_> = found.faults.iter().map(|f| (f.op.as_str(), f.kind, f.cause.as_str())).collect();
    for op in ["append", "rope_angles", "attention"] {
        assert!(told.iter().any(|t| (t.0, t.1) == (op, FaultKind::Operator)), "{op}: {told:?}");
    }
    let between: Vec<_> = told.iter().filter(|t| t.1 == FaultKind::Between).collect();
    assert!(between.len() == 1 && between[0].2 == "wrong_symbol", "{told:?}");
}
