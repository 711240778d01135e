//! A toy Llama: built, summarised, fused, expanded, cut apart.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Meanings, results, toy_llama};
use std::collections::HashSet;
use tapml_graph::op::Linear;
use tapml_graph::rewrite::RULES;
use tapml_graph::{
    Builder, DType, Graph, NodeId, OpCount, SummaryPort, TensorType, WeightCount, fuse, rewrite,
};

const LAYERS: usize = 2;

fn count(graph: &Graph, op: &str) -> usize {
    graph.op_kinds().into_iter().find(|(name, _)| *name == op).map_or(0, |(_, count)| count)
}

fn node(graph: &Graph, name: &str) -> NodeId {
    graph.find_node(name).unwrap_or_else(|| panic!("no node {name}"))
}

#[test]
fn the_summary_counts_by_hand() {
    let summary = toy_llama(LAYERS).unwrap().summary().unwrap();
    // Per layer: q, o 16·16; k, v 8·16; gate, up, down 24·16; two norms of 16. Then the table and the last norm.
    let parameters = 2 * (2 * 256 + 2 * 128 + 3 * 384 + 2 * 16) + 32 * 16 + 16;
    assert_eq!((summary.parameters, summary.weight_bytes), (parameters, 2 * parameters));
    let all = WeightCount { dtype: DType::BF16, tensors: 20, parameters, bytes: 2 * parameters };
    assert_eq!(summary.weights, [all]);
    // Keys and values of 8 floats in both layers.
    assert_eq!((summary.states, summary.state_bytes_per_token, summary.state_bytes_fixed), (4, 4 * 8 * 4, 0));
    assert_eq!(summary.nodes, 5 + LAYERS * 18);
    assert_eq!(summary.ops[0], OpCount { op: "embedding".into(), nodes: 1 });
    assert_eq!(summary.ops.iter().map(|o| o.nodes).sum::<usize>(), summary.nodes);
    assert_eq!(summary.inputs, [SummaryPort { name: "ids".into(), ty: "u32[n]".into() }]);
    assert_eq!(summary.outputs, [SummaryPort { name: "logits".into(), ty: "f32[1,32]".into() }]);
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["inputs"][0]["type"], "u32[n]");
    assert_eq!(serde_json::from_value::<tapml_graph::Summary>(json).unwrap(), summary);
}

#[test]
fn the_summary_refuses_what_it_cannot_count() {
    let mut b = Builder::new("g");
    for i in 0..3 {
        b.weight(format!("w{i}"), TensorType::new(DType::U8, [(1u64 << 63) - 1])).unwrap();
    }
    assert!(b.finish().unwrap().summary().unwrap_err().to_string().contains("do not fit 64 bits"));
    let text = "graph g\nstate s: f32[n,4] -> s2\ns2: f32[n,4] = silu(s)\nstate t: f16[3,4] -> t\n";
    let error = Graph::parse(text).unwrap().summary().unwrap_err().to_string();
    assert!(error.contains("state `s`") && error.contains("f32[n,4]"), "{error}");
    let fixed = Graph::parse("graph g\nstate t: f16[3,4] -> t\n").unwrap().summary().unwrap();
    assert_eq!((fixed.state_bytes_per_token, fixed.state_bytes_fixed), (0, 24));
}

#[test]
fn fusing_finds_every_place_and_keeps_names() {
    let plain = toy_llama(LAYERS).unwrap();
    let names: Vec<&str> = RULES.iter().map(|r| r.name).collect();
    let (fused, applied) = rewrite(&plain, &names).unwrap();
    assert_eq!(fuse(&plain).unwrap(), fused);
    // Of 2·layers+1 norms only the first has no sum before it.
    assert_eq!((count(&fused, "rms_norm"), count(&fused, "add_rms_norm")), (1, 2 * LAYERS));
    assert_eq!((count(&fused, "add"), count(&fused, "silu"), count(&fused, "mul")), (0, 0, 0));
    assert_eq!(count(&fused, "gated_linear"), LAYERS);
    assert_eq!(applied.iter().filter(|a| a.rule == "fuse_add_rms_norm").count(), 2 * LAYERS);
    let gate = applied.iter().find(|a| a.rule == "fuse_gated_linear").unwrap();
    assert_eq!(gate.after, ["model.layers.0.mlp.product"]);
    assert_eq!(gate.before.len(), 4);
    for name in ["model.layers.0.post_attention_layernorm", "model.layers.1.input_layernorm", "model.norm"] {
        let norm = fused.node(node(&fused, name));
        let outputs: Vec<&str> = norm.outputs.iter().map(|&v| fused.value(v).name.as_str()).collect();
        assert!(norm.op.name() == "add_rms_norm" && outputs[0].ends_with("residual") && outputs[1] == name);
    }
    let old: HashSet<&str> = plain.values().iter().map(|v| v.name.as_str()).collect();
    assert!(fused.values().iter().all(|v| old.contains(v.name.as_str())));
    let leaves = |g: &Graph| {
        let parts = [
            g.inputs().map(|(_, v)| v.clone()).collect::<Vec<_>>(),
            g.weights().map(|(_, v)| v.clone()).collect(),
        ];
        (
            parts,
            g.states().iter().map(|s| (s.name.clone(), g.value(s.output).name.clone())).collect::<Vec<_>>(),
        )
    };
    assert_eq!(leaves(&fused), leaves(&plain));
    let mut meanings = Meanings::default();
    assert_eq!(results(&mut meanings, &fused), results(&mut meanings, &plain));
}

#[test]
fn expanding_a_fused_graph_gives_the_plain_operators_back() {
    let plain = toy_llama(LAYERS).unwrap();
    let expanded = fuse(&plain).unwrap().inline_definitions().unwrap();
    let sorted = |g: &Graph| {
        let mut kinds = g.op_kinds();
        kinds.sort_unstable();
        kinds
    };
    assert_eq!(sorted(&expanded), sorted(&plain));
    assert!(expanded.find_node("model.layers.0.self_attn.residual").is_some());
    assert!(expanded.find_node("model.layers.0.mlp.product.g").is_some());
    assert_eq!(plain.inline_definitions().unwrap(), plain);
    assert_eq!(fuse(&expanded).unwrap(), fuse(&plain).unwrap());
}

#[test]
fn dead_branches_go_with_their_weights() {
    let mut b = Builder::new("g");
    let x = b
        .input("x", TensorType::new(DType::F32, ["n".parse().unwrap(), tapml_graph::Dim::from(4u64)]))
        .unwrap();
    let dead = b.weight("dead.weight", TensorType::new(DType::F32, [4u64, 4])).unwrap();
    let used = b.weight("used.weight", TensorType::new(DType::F32, [4u64, 4])).unwrap();
    b.node("dead", Linear::default(), &[x, dead]).unwrap();
    let y = b.node("used", Linear::default(), &[x, used]).unwrap();
    b.output("y", y);
    let fused = fuse(&b.finish().unwrap()).unwrap();
    assert_eq!(fused.nodes().len(), 1);
    assert_eq!(fused.weights().map(|(_, v)| v.name.as_str()).collect::<Vec<_>>(), ["used.weight"]);
}

#[test]
fn extracting_one_layer_keeps_its_states() {
    let graph = toy_llama(LAYERS).unwrap();
    let nodes = graph.nodes().iter().enumerate();
    let layer: Vec<NodeId> =
        nodes.filter(|(_, n)| n.name.starts_with("model.layers.1.")).map(|(i, _)| NodeId(i as u32)).collect();
    let part = graph.extract(&layer).unwrap();
    let inputs: Vec<&str> = part.inputs().map(|(_, v)| v.name.as_str()).collect();
    assert_eq!(inputs, ["model.rotary_emb", "model.layers.0.mlp.residual"]);
    assert_eq!(
        part.states().iter().map(|s| s.name.as_str()).collect::<Vec<_>>(),
        ["model.layers.1.k", "model.layers.1.v"]
    );
    assert_eq!(
        part.outputs().iter().map(|o| o.name.as_str()).collect::<Vec<_>>(),
        ["model.layers.1.mlp.residual"]
    );
    assert!(part.weights().all(|(_, v)| v.name.starts_with("model.layers.1.")));
    assert_eq!(part.nodes().len(), layer.len());
    assert_eq!(Graph::parse(&part.to_text()).unwrap(), part);
}

#[test]
fn a_state_cut_in_two_becomes_input_and_output() {
    let graph = toy_llama(1).unwrap();
    let attention = graph.extract(&[node(&graph, "model.layers.0.self_attn")]).unwrap();
    assert_eq!(
        attention.to_text(),
        "graph toy_llama
input model.layers.0.self_attn.q_rope: f32[n,16]
input model.layers.0.k_cache: f32[n+p,8]
input model.layers.0.v_cache: f32[n+p,8]
model.layers.0.self_attn: f32[n,16] = attention(model.layers.0.self_attn.q_rope, model.layers.0.k_cache, \
         model.layers.0.v_cache) {\"heads\":4,\"kv_heads\":2,\"head_dim\":4,\"scale\":0.5}
output model.layers.0.self_attn = model.layers.0.self_attn
"
    );
    // The node that updates the cache keeps the state, and its value, which attention uses, is an output as well.
    let append = graph.extract(&[node(&graph, "model.layers.0.k_cache")]).unwrap();
    assert_eq!(append.states().len(), 1);
    assert_eq!(append.outputs()[0].name, "model.layers.0.k_cache");
    // A second user of the value before the run, outside the set, makes it an input.
    let text = "graph g\ninput x: f32[n,4]\nstate s: f32[p,4] -> a\na: f32[n+p,4] = append(s, x)\nb: f32[p,4] = silu(s)\noutput b = b\n";
    let shared = Graph::parse(text).unwrap();
    let part = shared.extract(&[NodeId(0)]).unwrap();
    assert_eq!(
        part.to_text(),
        "graph g\ninput x: f32[n,4]\ninput s: f32[p,4]\na: f32[n+p,4] = append(s, x)\noutput a = a\n"
    );
    assert_eq!(shared.extract(&[NodeId(1), NodeId(0), NodeId(1)]).unwrap(), shared);
    // So does a result that is the value before the run, and a state that hands it on.
    for more in ["output s = s\n", "state t: f32[2,4] -> s\n"] {
        let text = format!("graph g\nstate s: f32[2,4] -> a\na: f32[2,4] = silu(s)\n{more}");
        let part = Graph::parse(&text).unwrap().extract(&[NodeId(0)]).unwrap();
        assert_eq!(part.to_text(), "graph g\ninput s: f32[2,4]\na: f32[2,4] = silu(s)\noutput a = a\n");
    }
    // A state that is overwritten unread stays a state.
    let text = "graph g\ninput x: f32[2,4]\nstate s: f32[2,4] -> a\na: f32[2,4] = silu(x)\n";
    assert_eq!(Graph::parse(text).unwrap().extract(&[NodeId(0)]).unwrap(), Graph::parse(text).unwrap());
}

#[test]
fn extracting_nothing_or_strangers_is_refused() {
    let graph = toy_llama(1).unwrap();
    assert!(graph.extract(&[]).unwrap_err().to_string().contains("no nodes"));
    assert!(
        graph
            .extract(&[NodeId(9999)])
            .unwrap_err()
            .to_string()
            .contains("node 9999 is not in graph `toy_llama`")
    );
}
