//! Faults between operators: kernels are right, and the device does something else with programs than it is told.
#![allow(clippy::unwrap_used)]

mod common;

use common::faulty::{Faulty, Wrong};
use common::{
    Carved, carved_model, diagnose_device, diagnosed_platform, diagnosed_with, emulator, only_fault,
    overrides, tiny,
};
use std::collections::HashMap;
use tapml_device::Finding;
use tapml_diagnose::DiagnoseOptions;
use tapml_exec::{Call, DevicePlatform, KernelChoice, Loaded, Phase, Platform, PlatformInfo, Sink};
use tapml_graph::op::{Add, Embedding, LastRow, Linear};
use tapml_graph::{Builder, DType, Dim, Model, Op, Result, Symbol, Symbols, Tensor, TensorType};

#[test]
fn a_right_device_has_no_faults() {
    for name in ["llama_tiny_plain", "mixtral_tiny", "rwkv7_tiny", "mamba2_tiny"] {
        let found = diagnose_device(&tiny(name), emulator(""), &overrides(&[]), &DiagnoseOptions::default());
        assert!(found.faults.is_empty(), "{name}: {:#?}", found.faults);
        assert!(found.skipped.is_empty(), "{name}: {:?}", found.skipped);
        assert!(found.whole.unwrap().passed, "{name}");
    }
}

#[test]
fn a_dispatch_that_does_not_take_place() {
    let carved = tiny("llama_tiny_plain");
    let node = carved.suite.graph().nodes().iter().find(|n| n.op.name() == "rope").unwrap().name.clone();
    let found = diagnosed_with(&carved, Wrong::Dispatch(node.clone()));
    let fault = only_fault(&found);
    assert_eq!((fault.cause.as_str(), &fault.nodes), ("not_written", &vec![node]), "{}", fault.evidence);
    assert!(fault.output_impact.as_ref().unwrap().kl > 0.0);
}

#[test]
fn sizes_of_the_step_before() {
    let found = diagnosed_with(&tiny("llama_tiny_plain"), Wrong::Symbols);
    let fault = only_fault(&found);
    assert_eq!(fault.cause, "wrong_symbol", "{}", fault.evidence);
}

#[test]
fn memory_that_overlaps() {
    let carved = tiny("llama_tiny_plain");
    let layer = |part: &str| format!("model.layers.0.self_attn.{part}");
    let found = diagnosed_with(&carved, Wrong::Overlap(layer("k_proj"), layer("v_proj")));
    let fault = only_fault(&found);
    assert_eq!(fault.cause, "buffer_reused", "{}", fault.evidence);
    assert_eq!(fault.nodes, [layer("k_proj"), layer("v_proj"), layer("rope_k")]);
    assert!(fault.first_bad_case.starts_with("p0.s0.") && fault.evidence.contains("overlap"));
}

/// The last token's embedding is added to a state, and the sum makes the logits.
fn sums() -> Carved {
    let (width, vocab) = (8usize, 20usize);
    let mut b = Builder::new("sums");
    let ids = b.input("ids", TensorType::new(DType::U32, [Dim::symbol(Symbol::N)])).unwrap();
    let table = b.weight("embed.weight", TensorType::new(DType::F32, [vocab, width])).unwrap();
    let x = b.node("embed", Embedding { dtype: DType::F32 }, &[ids, table]).unwrap();
    let last = b.node("last", LastRow {}, &[x]).unwrap();
    let memory = b.state("memory", TensorType::new(DType::F32, [1, width])).unwrap();
    let sum = b.node("sum", Add {}, &[last, memory]).unwrap();
    b.set_state(memory, sum).unwrap();
    let logits = b.node("head", Linear::default(), &[sum, table]).unwrap();
    b.output("logits", logits);
    let values = (0..vocab * width).map(|i| ((i * 37 % 101) as f32 - 50.0) / 40.0).collect();
    let table = Tensor::from_f32(vec![vocab, width], values).unwrap();
    let weights = HashMap::from([("embed.weight".to_string(), table)]);
    carved_model(Model::new(b.finish().unwrap(), weights).unwrap(), &[&[3, 14, 15], &[9]], 2)
}

#[test]
fn a_state_that_is_not_reset_and_one_that_is_not_copied_back() {
    let carved = sums();
    let found = diagnosed_with(&carved, Wrong::Writes("memory".into()));
    let fault = only_fault(&found);
    assert_eq!((fault.cause.as_str(), fault.certain), ("state_not_reset", true), "{}", fault.evidence);
    assert_eq!(fault.nodes, ["sum"]);
    let found = diagnosed_with(&carved, Wrong::Copies("memory".into()));
    let fault = only_fault(&found);
    assert_eq!((fault.cause.as_str(), fault.certain), ("missing_copy", true), "{}", fault.evidence);
}

#[test]
fn fills_that_do_not_take_place() {
    let found = diagnosed_with(&tiny("llama_tiny_plain"), Wrong::Fills);
    assert_eq!(only_fault(&found).cause, "not_written");
}

#[test]
fn what_happens_only_now_and_then() {
    let carved = tiny("llama_tiny_plain");
    let node = carved.suite.graph().nodes().iter().rfind(|n| n.op.name() == "linear").unwrap().name.clone();
    let found = diagnosed_with(&carved, Wrong::Now(node.clone()));
    let fault = only_fault(&found);
    assert!(fault.nodes.contains(&node), "{:?}", found.faults);
    assert!(["not_written", "race"].contains(&fault.cause.as_str()), "{}: {}", fault.cause, fault.evidence);
}

/// All recorded runs are right, and a later one of the same is not.
#[test]
fn what_happens_only_after_a_while() {
    let carved = tiny("llama_tiny_plain");
    let node = carved.suite.graph().nodes().iter().find(|n| n.op.name() == "rope").unwrap().name.clone();
    let found = diagnosed_with(&carved, Wrong::Tired(node.clone(), carved.suite.frames().len() as u32));
    let fault = only_fault(&found);
    assert_eq!((fault.cause.as_str(), &fault.nodes), ("race", &vec![node]), "{}", fault.evidence);
    assert!(fault.certain && fault.evidence.contains("when the same run is repeated"), "{}", fault.evidence);
    assert!(found.whole.unwrap().passed);
}

/// The last element of a buffer that has room for more rows than there are is what memory held before; times zero it does
/// nothing as long as it is a number.
#[test]
fn what_depends_on_memory_that_nobody_wrote() {
    let carved = tiny("llama_tiny_plain");
    let reads = "b * cosine + a * sine + 0.0 * f32(x[arrayLength(&x) - 1u])";
    let kernels = overrides(&[("rope", &[("b * cosine + a * sine", reads)])]);
    let found = diagnose_device(&carved, emulator(""), &kernels, &DiagnoseOptions::default());
    let fault = only_fault(&found);
    assert_eq!((fault.cause.as_str(), fault.certain), ("uninitialised", true), "{}", fault.evidence);
    assert!(fault.op == "rope" && fault.first_bad_case.contains("rope"), "{:?}", fault.nodes);
}

/// A platform that shows no values of single nodes.
struct Blind(DevicePlatform);

impl Platform for Blind {
    fn word(&self) -> &str {
        self.0.word()
    }
    fn describe(&self) -> PlatformInfo {
        self.0.describe()
    }
    fn kernel_for(&self, op: &Op, inputs: &[TensorType], phase: Phase) -> Result<KernelChoice> {
        self.0.kernel_for(op, inputs, phase)
    }
    fn replay(&mut self, calls: &[Call], sink: &mut Sink<'_>) -> Result<()> {
        self.0.replay(calls, sink)
    }
    fn load(&mut self, model: &Model, capacity: &Symbols) -> Result<Box<dyn Loaded>> {
        self.0.load(model, capacity)
    }
    fn take_findings(&mut self) -> Vec<Finding> {
        self.0.take_findings()
    }
    fn memory(&self) -> (u64, u64) {
        self.0.memory()
    }
}

#[test]
fn without_a_look_at_values_the_smallest_set_of_nodes_that_fails_together_is_found() {
    let carved = tiny("llama_tiny_plain");
    let layer = |part: &str| format!("model.layers.0.{part}");
    let wrong = Wrong::Dispatch(layer("self_attn.rope_q"));
    let device = Box::new(Faulty::new(emulator(""), wrong));
    let mut target = Blind(DevicePlatform::new(device, overrides(&[])));
    let options = DiagnoseOptions::default();
    let found = diagnosed_platform(&carved, &mut target, None, &overrides(&[]), None, &options);
    let fault = only_fault(&found);
    assert_eq!(fault.cause, "unknown");
    // The dispatch is lost only in one list with the embedding, so all between the two must be on the target.
    let chain = ["input_layernorm", "self_attn.q_proj", "self_attn.rope_q"].map(layer);
    assert_eq!(fault.nodes[0], "model.embed_tokens");
    assert_eq!(fault.nodes[1..], chain);
    assert!(fault.evidence.contains("these 4 nodes, and no fewer"), "{}", fault.evidence);
}

/// As in a launch that joins several nodes, which is taken apart when their values are kept.
#[test]
fn what_goes_away_when_it_is_looked_at_is_told_with_what_was_compared() {
    let carved = tiny("llama_tiny_plain");
    let found = diagnosed_with(&carved, Wrong::Unwatched("model.layers.0.self_attn.rope_q".into()));
    let fault = only_fault(&found);
    assert_eq!((fault.cause.as_str(), fault.certain), ("unknown", false), "{}", fault.evidence);
    let parts = ["no fewer of them", "times as far from the source's", "a joined launch, or the memory"];
    assert!(parts.iter().all(|part| fault.evidence.contains(part)), "{}", fault.evidence);
}
