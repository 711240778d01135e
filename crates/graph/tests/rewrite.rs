//! Rewrites: what each rule does and refuses, and that meaning never changes.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Meanings, parse, random_graph, results, steps};
use proptest::prelude::*;
use std::collections::HashSet;
use tapml_graph::op::{AddRmsNorm, OPS};
use tapml_graph::rewrite::{RULES, quantize};
use tapml_graph::{NodeId, fuse, rewrite};

/// Asserts that rewriting `before` by this rule gives `after`.
fn becomes(rule: &str, before: &str, after: &str) {
    let (found, applied) = rewrite(&parse(before), &[rule]).unwrap();
    assert_eq!(found.to_text(), parse(after).to_text(), "{rule}");
    assert_eq!(applied.is_empty(), before == after, "{rule}: {applied:?}");
}

const NORM: &str = "\
input a: f32[n,8]
input b: f32[n,8]
sum: f32[n,8] = add(a, b) as residual
early: f32[n,8] = silu(sum)
weight w: bf16[8]
y: f32[n,8] = rms_norm(sum, w) {\"eps\":0.00001} as norm
late: f32[n,8] = mul(sum, y)
";

#[test]
fn add_rms_norm_keeps_the_sum_for_its_other_users() {
    let ends = "output sum = sum\noutput early = early\noutput late = late\n";
    let fused = "\
input a: f32[n,8]
input b: f32[n,8]
weight w: bf16[8]
sum: f32[n,8], y: f32[n,8] = add_rms_norm(a, b, w) {\"eps\":0.00001} as norm
early: f32[n,8] = silu(sum)
late: f32[n,8] = mul(sum, y)
";
    // `early` stood in front of the norm and now follows it: it needs the fused node's sum.
    becomes("fuse_add_rms_norm", &format!("{NORM}{ends}"), &format!("{fused}{ends}"));
    let (_, applied) = rewrite(&parse(&format!("{NORM}{ends}")), &["fuse_add_rms_norm"]).unwrap();
    assert_eq!(applied.len(), 1);
    assert_eq!(
        (applied[0].before.as_slice(), applied[0].after.as_slice()),
        (&["residual".into(), "norm".into()][..], &["norm".into()][..])
    );
}

#[test]
fn add_rms_norm_leaves_other_shapes_alone() {
    let computed_weight = "\
input a: f32[n,8]
input w: f32[8]
sum: f32[n,8] = add(a, a)
w2: f32[8] = add(w, w)
y: f32[n,8] = rms_norm(sum, w2) {\"eps\":0.5}
output y = y
";
    becomes("fuse_add_rms_norm", computed_weight, computed_weight);
    let product = NORM.replace("add(", "mul(");
    becomes("fuse_add_rms_norm", &product, &product);
    // Of two norms of one sum only the first is fused.
    let two = format!("{NORM}z: f32[n,8] = rms_norm(sum, w) {{\"eps\":1.0}}\noutput z = z\n");
    let (graph, applied) = rewrite(&parse(&two), &["fuse_add_rms_norm"]).unwrap();
    assert_eq!((applied.len(), graph.op_kinds().contains(&("rms_norm", 1))), (1, true));
}

#[test]
fn add_rms_norm_carries_offset_and_missing_weight_and_refuses_groups() {
    let ends = "output late = late\n";
    let with = |norm: &str, attributes: &str| {
        let old = "rms_norm(sum, w) {\"eps\":0.00001}";
        format!("{NORM}{ends}").replace(old, &format!("rms_norm({norm}) {{\"eps\":0.00001{attributes}}}"))
    };
    let fused = |text: &str| {
        let (graph, _) = rewrite(&parse(text), &["fuse_add_rms_norm"]).unwrap();
        graph.nodes().iter().find(|n| n.op.name() == "add_rms_norm").map(|n| (n.op.clone(), n.inputs.len()))
    };
    let plain = AddRmsNorm::new(1e-5);
    let shifted = AddRmsNorm { offset: 1.0, ..plain.clone() };
    assert_eq!(fused(&with("sum, w", ",\"offset\":1.0")), Some((shifted.into(), 3)));
    assert_eq!(fused(&with("sum", "")), Some((plain.into(), 2)));
    let heads = with("sum, w", ",\"group\":4");
    becomes("fuse_add_rms_norm", &heads, &heads);
    for stretched in ["f32[8]", "f32[n,1]"] {
        let text = with("sum, w", "").replace("input b: f32[n,8]", &format!("input b: {stretched}"));
        becomes("fuse_add_rms_norm", &text, &text);
    }
}

fn gated_graph(extra: &str, product: &str) -> String {
    format!(
        "input x: f32[n,8]
weight g: bf16[12,8]
weight u: bf16[12,8]
weight bias: bf16[12]
weight other: f32[12,8]
gate: f32[n,12] = linear(x, g)
act: f32[n,12] = silu(gate)
up: f32[n,12] = linear(x, u)
y: f32[n,12] = {product} as product
output y = y
{extra}"
    )
}

#[test]
fn gated_linear_takes_the_products_name_in_either_order() {
    let fused = "\
input x: f32[n,8]
weight g: bf16[12,8]
weight u: bf16[12,8]
weight bias: bf16[12]
weight other: f32[12,8]
y: f32[n,12] = gated_linear(x, g, u) as product
output y = y
";
    becomes("fuse_gated_linear", &gated_graph("", "mul(act, up)"), fused);
    becomes("fuse_gated_linear", &gated_graph("", "mul(up, act)"), fused);
    // The fused node stands where the product stood.
    let early = "d: f32[n,8] = silu(x)\ne: f32[n,8] = silu(d)\n";
    let late = "l: f32[n,8] = silu(e)\noutput l = l\n";
    let around = |text: &str, first: &str| text.replace(first, &format!("{early}{first}")) + late;
    becomes("fuse_gated_linear", &around(&gated_graph("", "mul(act, up)"), "gate:"), &around(fused, "y:"));
    let declared =
        gated_graph("", "mul(up, act)").replace("linear(x, u)", "linear(x, u) {\"dtype\":\"f32\"}");
    becomes("fuse_gated_linear", &declared, fused);
}

#[test]
fn gated_linear_refuses_other_users_biases_and_types() {
    let plain = gated_graph("", "mul(act, up)");
    let unfusable = [
        gated_graph("output gate = gate\n", "mul(act, up)"),
        gated_graph("output act = act\n", "mul(act, up)"),
        gated_graph("output up = up\n", "mul(act, up)"),
        gated_graph("more: f32[n,12] = silu(up)\noutput more = more\n", "mul(act, up)"),
        gated_graph("", "mul(act, gate)"),
        gated_graph("", "mul(act, act)"),
        plain.replace("mul(", "add("),
        plain.replace("linear(x, u)", "linear(x, u, bias)"),
        plain.replace("linear(x, g)", "linear(x, g, bias)"),
        plain.replace("linear(x, u)", "linear(x, other)"),
        plain
            .replace("f32[n,12]", "f16[n,12]")
            .replace("linear(x, g)", "linear(x, g) {\"dtype\":\"f16\"}")
            .replace("linear(x, u)", "linear(x, u) {\"dtype\":\"f16\"}"),
        plain.replace("input x", "input z: f32[n,8]\ninput x").replace("linear(x, u)", "linear(z, u)"),
    ];
    for text in unfusable {
        becomes("fuse_gated_linear", &text, &text);
    }
}

fn expert_gated(extra: &str, product: &str) -> String {
    format!(
        "input x: f32[n,8]
input experts: u32[n,2]
input others: u32[n,2]
weight g: bf16[4,12,8]
weight u: bf16[4,12,8]
weight bias: bf16[4,12]
weight other: f32[4,12,8]
gate: f32[n,24] = expert_linear(x, g, experts)
act: f32[n,24] = silu(gate)
up: f32[n,24] = expert_linear(x, u, experts)
y: f32[n,24] = {product} as product
output y = y
{extra}"
    )
}

#[test]
fn expert_gated_linear_takes_products_of_the_same_experts_only() {
    let rule = "fuse_expert_gated_linear";
    let plain = expert_gated("", "mul(act, up)");
    let lines =
        |text: &str| text.lines().filter(|l| !l.starts_with("gate:")).map(|l| format!("{l}\n")).collect();
    let fused: String = lines(&plain);
    let fused = fused
        .replace("act: f32[n,24] = silu(gate)\n", "")
        .replace("up: f32[n,24] = expert_linear(x, u, experts)\n", "")
        .replace("mul(act, up)", "expert_gated_linear(x, g, u, experts)");
    becomes(rule, &plain, &fused);
    becomes(rule, &expert_gated("", "mul(up, act)"), &fused);
    let unfusable = [
        expert_gated("output gate = gate\n", "mul(act, up)"),
        expert_gated("output act = act\n", "mul(act, up)"),
        expert_gated("more: f32[n,24] = silu(up)\noutput more = more\n", "mul(act, up)"),
        expert_gated("", "mul(act, act)"),
        plain.replace("(x, u, experts)", "(x, u, others)"),
        plain.replace("(x, u, experts)", "(x, u, experts, bias)"),
        plain.replace("(x, g, experts)", "(x, g, experts, bias)"),
        plain.replace("(x, u, experts)", "(x, other, experts)"),
        plain.replace("mul(act", "add(act"),
    ];
    for text in unfusable {
        becomes(rule, &text, &text);
    }
}

#[test]
fn drop_dead_keeps_what_reaches_results_and_states() {
    let before = "\
input x: f32[n,8]
input unused: f32[n,8]
weight w: f32[8]
weight lost: f32[8]
state s: f32[p,8] -> all
dead1: f32[n,8] = rms_norm(x, lost) {\"eps\":1.0}
dead2: f32[n,8] = silu(dead1)
sum: f32[n,8], half_used: f32[n,8] = add_rms_norm(x, x, w) {\"eps\":1.0} as pair
all: f32[n+p,8] = append(s, sum)
";
    let after: String = before
        .lines()
        .filter(|l| !l.contains("dead") && !l.contains("lost"))
        .map(|l| format!("{l}\n"))
        .collect();
    becomes("drop_dead", before, &after);
    let (_, applied) = rewrite(&parse(before), &["drop_dead"]).unwrap();
    assert_eq!(applied[0].before, ["dead1", "dead2", "lost"]);
    assert!(applied[0].after.is_empty());
    let weight_only = "input x: f32[n,8]\nweight w: f32[8]\noutput x = x\n";
    becomes("drop_dead", weight_only, "input x: f32[n,8]\noutput x = x\n");
    let weight_as_result = "weight w: f32[8]\noutput w = w\n";
    becomes("drop_dead", weight_as_result, weight_as_result);
}

#[test]
fn rules_are_found_by_unique_names() {
    let names: HashSet<&str> = RULES.iter().map(|r| r.name).collect();
    assert_eq!(names.len(), RULES.len());
    let error = rewrite(&parse(NORM), &["fuse_everything"]).unwrap_err();
    assert!(error.to_string().contains("unknown rule `fuse_everything`"));
    assert!(RULES.iter().all(|r| error.hint().unwrap().contains(r.name)));
}

#[test]
fn expanding_avoids_names_that_are_taken() {
    let text = "input x: f32[n,8]
weight y.u: bf16[12,8]
y.g: f32[n,8] = silu(x)
y: f32[n,12] = gated_linear(y.g, y.u, y.u)
z: f32[n,12] = silu(y) as y.s
output z = z
";
    let plain = parse(text).inline_definitions().unwrap();
    let nodes: Vec<&str> = plain.nodes().iter().map(|n| n.name.as_str()).collect();
    assert_eq!(nodes, ["y.g", "y.g.2", "y.u.2", "y.s.2", "y", "y.s"]);
}

#[test]
fn fusing_undoes_expanding_for_every_fused_sample() {
    let mut count = 0;
    for sample in OPS.iter().flat_map(|o| (o.samples)()) {
        if sample.op.definition(&sample.types()).is_none() {
            continue;
        }
        count += 1;
        let graph = sample.graph().unwrap();
        let plain = graph.inline_definitions().unwrap();
        assert!(plain.nodes().len() > 1);
        let fused = fuse(&plain).unwrap();
        assert_eq!(fused.nodes().len(), 1, "{} {}", sample.op.name(), sample.name);
        assert_eq!(fused.nodes()[0].op, sample.op);
        assert_eq!(fused.values(), graph.values());
    }
    assert!(count >= 6);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rewrites_keep_meaning_signature_and_value_names(steps in steps()) {
        let graph = random_graph(&steps);
        let mut meanings = Meanings::default();
        let wanted = results(&mut meanings, &graph);
        let values = meanings.find_values(&graph, &Default::default());
        for rule in RULES.iter().map(|r| vec![r.name]).chain([RULES.iter().map(|r| r.name).collect()]) {
            let (after, applied) = rewrite(&graph, &rule).unwrap();
            prop_assert_eq!(&results(&mut meanings, &after), &wanted, "{:?}\n{}\n{}", rule, graph, after);
            // Whatever value is left still means what it meant: recorded tensors match by name.
            for (name, meaning) in meanings.find_values(&after, &Default::default()) {
                prop_assert_eq!(values.get(&name), Some(&meaning), "{:?} {}", rule, name);
            }
            prop_assert_eq!(after == graph, applied.is_empty());
            prop_assert_eq!(rewrite(&after, &rule).unwrap(), (after, vec![]));
        }
        let plain = graph.inline_definitions().unwrap();
        prop_assert_eq!(&results(&mut meanings, &plain), &wanted);
        prop_assert!(plain.nodes().iter().all(|n| n.op.definition(&plain.input_types(n)).is_none()));
        let inner = meanings.find_values(&plain, &Default::default());
        prop_assert!(values.iter().all(|(name, meaning)| inner[name] == *meaning));
        prop_assert_eq!(&results(&mut meanings, &fuse(&plain).unwrap()), &wanted);
    }

    #[test]
    fn extracted_nodes_mean_what_they_meant(steps in steps(), picked in any::<u64>()) {
        let graph = random_graph(&steps);
        let nodes: Vec<NodeId> =
            (0..graph.nodes().len() as u32).filter(|i| picked >> (i % 64) & 1 == 1).map(NodeId).rev().collect();
        if nodes.is_empty() {
            return Ok(());
        }
        let part = graph.extract(&nodes).unwrap();
        prop_assert_eq!(part.nodes().len(), nodes.len());
        let mut meanings = Meanings::default();
        let whole = meanings.find_values(&graph, &Default::default());
        for (name, meaning) in meanings.find_values(&part, &whole) {
            prop_assert_eq!(whole[&name], meaning, "{}", name);
        }
        for (old, id) in nodes.iter().map(|&n| (graph.node(n), part.find_node(&graph.node(n).name).unwrap())) {
            prop_assert_eq!(&part.node(id).op, &old.op);
        }
        let all: Vec<NodeId> = (0..graph.nodes().len() as u32).map(NodeId).collect();
        prop_assert_eq!(graph.extract(&all).unwrap().nodes().len(), graph.nodes().len());
    }
}

const PACKED: &str = "\
input x: f32[n,16]
weight g: int4g8[12,16]
weight u: int4g8[12,16]
gate: f32[n,12] = linear(x, g)
act: f32[n,12] = silu(gate)
up: f32[n,12] = linear(x, u)
y: f32[n,12] = mul(act, up)
output y = y
";

#[test]
fn packed_weights_are_fused_as_others_where_they_are_packed_alike() {
    let fused = "\
input x: f32[n,16]
weight g: int4g8[12,16]
weight u: int4g8[12,16]
y: f32[n,12] = gated_linear(x, g, u)
output y = y
";
    assert_eq!(fuse(&parse(PACKED)).unwrap().to_text(), parse(fused).to_text());
    // Weights that are packed differently stay apart, as do the gates of experts with zero points.
    let apart = PACKED.replace("u: int4g8[12,16]", "u: int4g16[12,16]");
    assert_eq!(fuse(&parse(&apart)).unwrap().op_kinds(), [("linear", 2), ("silu", 1), ("mul", 1)]);
    let experts = PACKED
        .replace("[12,16]", "[3,12,16]")
        .replace("linear(x, g)", "expert_linear(x, g, chosen)")
        .replace("linear(x, u)", "expert_linear(x, u, chosen)")
        .replace("input x: f32[n,16]", "input x: f32[n,16]\ninput chosen: u32[n,1]");
    assert_eq!(fuse(&parse(&experts)).unwrap().op_kinds(), [("expert_gated_linear", 1)]);
    let zeros = experts.replace("int4g8", "int4g8z");
    assert_eq!(fuse(&parse(&zeros)).unwrap().op_kinds(), [("expert_linear", 2), ("silu", 1), ("mul", 1)]);
}

#[test]
fn only_operators_that_say_so_take_packed_weights() {
    let infer = |text: &str| {
        tapml_graph::Graph::parse(&format!("graph g\n{text}output y = y\n")).unwrap_err().to_string()
    };
    let error = infer("input x: f32[n,16]\nweight w: int4g8[1,16]\ny: f32[n,16] = mul(x, w)\n");
    assert!(error.contains("input 1 is int4g8[1,16]: it cannot be packed"), "{error}");
    let two = "input x: f32[n,16]\nweight g: int4g8[12,16]\nweight u: int8g8[12,16]\n\
               y: f32[n,12] = gated_linear(x, g, u)\n";
    let error = infer(two);
    assert!(error.contains("packed alike, found int4g8[12,16] and int8g8[12,16]"), "{error}");
    let error = infer(&two.replace("u: int8g8", "u: f16"));
    assert!(error.contains("input 2 is f16[12,16]"), "{error}");
    let old = "input x: f32[n,8]\nweight q: u32[4,1]\nweight s: f16[4,1]\n\
               y: f32[n,4] = quantized_linear(x, q, s) {\"bits\":4,\"group\":8}\noutput y = y\n";
    let error = tapml_graph::Graph::parse(&format!("graph g\n{old}")).unwrap_err();
    assert!(error.hint().unwrap().contains("carve the suite"), "{error}");
    let error = infer("input x: f32[n,12]\nweight w: int4g8[4,12]\ny: f32[n,4] = linear(x, w)\n");
    assert!(error.contains("no matrix whose rows are whole groups of 8"), "{error}");
}

#[test]
fn quantising_changes_the_types_of_chosen_weights() {
    let plain = PACKED.replace("int4g8", "bf16");
    let packing = |group| tapml_graph::Packing::integers(4, group, false);
    let found = quantize(&parse(&plain), &|_| Some(packing(8))).unwrap();
    assert_eq!(found.to_text(), parse(PACKED).to_text());
    let one = quantize(&parse(&plain), &|weight| (weight.name == "u").then_some(packing(16))).unwrap();
    assert_eq!(fuse(&one).unwrap().op_kinds(), [("linear", 2), ("silu", 1), ("mul", 1)]);
    for group in [0, 12, 32] {
        let error = quantize(&parse(&plain), &|_| Some(packing(group))).unwrap_err();
        assert!(error.to_string().starts_with("weight `g`: "), "{error}");
    }
    // What takes no packed weight gets its numbers, once.
    let text = "input x: f32[16,16]\nweight w: f32[16,16]\na: f32[16,16] = add(x, w)\n\
                b: f32[16,16] = mul(a, w)\ny: f32[16,16] = linear(b, w)\noutput y = y\n";
    let found = quantize(&parse(text), &|_| Some(packing(8))).unwrap();
    let kinds = found.op_kinds();
    assert_eq!(kinds, [("dequantize", 1), ("add", 1), ("mul", 1), ("linear", 1)]);
    assert_eq!(
        found.find_value("w.numbers").map(|v| found.value(v).ty.to_string()),
        Some("f32[16,16]".into())
    );
}
