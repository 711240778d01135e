//! A graph shared out among ranks: what each rank computes, how its weights are named and read, and what cannot be shared out.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use tapml_graph::{ErrorKind, Graph, Model, Tensor};

/// One layer of 4 heads of queries on 2 of keys and values, as a checkpoint has it.
const LAYER: &str = "graph g
input ids: u32[n]
weight table: f32[20,8]
state keys: f32[p,4] -> all_keys
state values: f32[p,4] -> all_values
weight q.weight: f32[8,8]
weight q.bias: f32[8]
weight k.weight: f32[4,8]
weight v.weight: f32[4,8]
weight o.weight: f32[8,8]
weight o.bias: f32[8]
weight norm.weight: f32[8]
weight gate.weight: f32[12,8]
weight up.weight: f32[12,8]
weight down.weight: f32[8,12]
x: f32[n,8] = embedding(ids, table) {\"dtype\":\"f32\"}
angles: f32[n,2] = rope_angles() {\"inv_freq\":[1.0],\"scale\":1.0}
q: f32[n,8] = linear(x, q.weight, q.bias)
q.rope: f32[n,8] = rope(q, angles) {\"head_dim\":2,\"rotary_dim\":2,\"interleaved\":false}
k: f32[n,4] = linear(x, k.weight)
v: f32[n,4] = linear(x, v.weight)
all_keys: f32[n+p,4] = append(keys, k)
all_values: f32[n+p,4] = append(values, v)
seen: f32[n,8] = attention(q.rope, all_keys, all_values) {\"heads\":4,\"kv_heads\":2,\"head_dim\":2,\"scale\":0.7}
o: f32[n,8] = linear(seen, o.weight, o.bias)
sum: f32[n,8], normed: f32[n,8] = add_rms_norm(x, o, norm.weight) {\"eps\":0.00001} as norm
mlp: f32[n,12] = gated_linear(normed, gate.weight, up.weight)
down: f32[n,8] = linear(mlp, down.weight)
y: f32[n,8] = add(sum, down)
logits: f32[n,20] = linear(y, table)
output logits = logits
";

fn shard(text: &str, ranks: u32) -> Graph {
    Graph::parse(text).unwrap().shard(ranks).unwrap()
}

fn refuse(text: &str, ranks: u32) -> String {
    let error = Graph::parse(text).unwrap().shard(ranks).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    error.to_string()
}

/// The lines of a graph's text that hold this.
fn lines<'a>(text: &'a str, part: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.contains(part)).collect()
}

#[test]
fn heads_and_columns_are_shared_out_and_the_sums_meet() {
    let graph = shard(LAYER, 2);
    let text = graph.to_text();
    assert_eq!(Graph::parse(&text).unwrap(), graph, "the text form round-trips");
    let attention = lines(&text, "= attention(");
    assert_eq!(attention.len(), 2);
    assert!(attention[1].contains("seen@1: f32[n,4]"), "{}", attention[1]);
    assert!(attention[1].contains("\"heads\":2,\"kv_heads\":1"), "{}", attention[1]);
    assert_eq!(lines(&text, "state keys@1: f32[p,2] -> all_keys@1").len(), 1);
    assert_eq!(lines(&text, "weight q.weight@rows.4-8: f32[4,8]").len(), 1);
    assert_eq!(lines(&text, "weight q.bias@rows.4-8: f32[4]").len(), 1);
    assert_eq!(lines(&text, "weight down.weight@columns.6-12: f32[8,6]").len(), 1);
    // The bias is added one time.
    assert_eq!(lines(&text, "o.bias)"), ["o@0: f32[n,8] = linear(seen@0, o.weight@columns.0-4, o.bias)"]);
    let reduced = "o: f32[n,8] = all_reduce(o@0, o@1) {\"ranks\":2} as o.all_reduce";
    assert_eq!(lines(&text, "as o.all_reduce"), [reduced]);
    // The vocabulary is shared out, the same weight is whole where ids look rows up.
    assert_eq!(lines(&text, "weight table@rows.10-20: f32[10,8]").len(), 1);
    assert_eq!(lines(&text, "embedding(ids, table)").len(), 1);
    assert_eq!(lines(&text, "= all_gather(logits@0, logits@1)").len(), 1);
}

#[test]
fn ranks_beyond_the_heads_of_keys_share_them() {
    let graph = shard(LAYER, 4);
    let text = graph.to_text();
    // Ranks 2 and 3 both read the second head; each has a cache of it and the same slice of its weight.
    assert_eq!(lines(&text, "weight k.weight@rows.2-4: f32[2,8]").len(), 1);
    assert_eq!(lines(&text, "linear(x, k.weight@rows.2-4)").len(), 2);
    assert_eq!(lines(&text, "state keys@3: f32[p,2]").len(), 1);
    assert!(lines(&text, "= attention(")[3].contains("\"heads\":1,\"kv_heads\":1"));
}

#[test]
fn pages_are_shared_out_as_caches_are() {
    let layout =
        tapml_graph::paged::PageLayout { page: 4, pages: 6, texts: 2, blocks: 3, wanted: None, states: 0 };
    let graph = Graph::parse(LAYER).unwrap().to_paged(layout).unwrap().shard(2).unwrap();
    let text = graph.to_text();
    assert_eq!(lines(&text, "state values@0: f32[24,2]").len(), 1);
    assert_eq!(lines(&text, "= paged_attention(").len(), 2);
    assert_eq!(lines(&text, "= all_reduce(").len(), 2);
}

#[test]
fn a_node_belongs_to_a_rank_or_to_all() {
    let graph = shard(LAYER, 2);
    let ranks = graph.node_ranks();
    assert_eq!(graph.ranks(), Some(2));
    let of = |name: &str| ranks[graph.find_node(name).unwrap().0 as usize];
    assert_eq!([of("x"), of("angles"), of("norm"), of("o.all_reduce"), of("y")], [None; 5]);
    assert_eq!([of("q@1"), of("all_keys@1"), of("seen@1"), of("o@1"), of("logits@1")], [Some(1); 5]);
    assert_eq!(Graph::parse(LAYER).unwrap().ranks(), None);
}

#[test]
fn a_projection_to_queries_keys_and_values_at_once_is_cut_in_each_part() {
    let fused = LAYER
        .replace("weight q.weight: f32[8,8]\nweight q.bias: f32[8]\n", "weight qkv.weight: f32[16,8]\n")
        .replace("weight k.weight: f32[4,8]\nweight v.weight: f32[4,8]\n", "")
        .replace(
            "q: f32[n,8] = linear(x, q.weight, q.bias)",
            "qkv: f32[n,16] = linear(x, qkv.weight)\nq: f32[n,8] = columns(qkv) {\"group\":16,\"first\":0,\"count\":8}",
        )
        .replace("linear(x, k.weight)", "columns(qkv) {\"group\":16,\"first\":8,\"count\":4}")
        .replace("linear(x, v.weight)", "columns(qkv) {\"group\":16,\"first\":12,\"count\":4}");
    let text = shard(&fused, 2).to_text();
    assert_eq!(lines(&text, "weight qkv.weight@rows.4-8.10-12.14-16: f32[8,8]").len(), 1);
    assert_eq!(
        lines(&text, "k@1: f32[n,2]"),
        ["k@1: f32[n,2] = columns(qkv@1) {\"group\":8,\"first\":4,\"count\":2}"]
    );
}

#[test]
fn slices_are_read_from_the_weights_that_they_name() {
    let graph = Graph::parse(LAYER).unwrap();
    let weight = |(_, value): (_, &tapml_graph::Value)| {
        let shape = value.ty.sizes(&tapml_graph::Symbols::new()).unwrap();
        let count: usize = shape.iter().product();
        (value.name.clone(), Tensor::from_f32(shape, (0..count).map(|i| i as f32).collect()).unwrap())
    };
    let weights: HashMap<String, Tensor> = graph.weights().map(weight).collect();
    let model = Model::new(graph, weights).unwrap();
    let sharded = model.with_graph(model.graph().shard(2).unwrap()).unwrap();
    let down = sharded.weight("down.weight@columns.6-12").unwrap();
    assert_eq!(
        (down.shape(), &down.to_f32()[..7]),
        (&[8, 6][..], &[6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 18.0][..])
    );
    let rows = sharded.weight("v.weight@rows.2-4").unwrap();
    assert_eq!(rows.to_f32()[..], model.weight("v.weight").unwrap().to_f32()[16..]);
    // Another graph of the same weights has them, too.
    assert!(sharded.with_graph(model.graph().clone()).is_ok());
    let outside = model.graph().to_text().replace("q.weight", "q.weight@rows.4-12");
    let error = model.with_graph(Graph::parse(&outside).unwrap()).unwrap_err().to_string();
    assert!(error.contains("`q.weight@rows.4-12` is no slice of f32[8,8]"), "{error}");
}

#[test]
fn what_does_not_divide_is_told_with_the_node() {
    let heads = refuse(LAYER, 8);
    assert!(heads.contains("node `seen`") && heads.contains("no whole heads"), "{heads}");
    let columns = refuse(LAYER, 3);
    assert!(columns.contains("node `o`: 8 columns do not divide by 3 ranks"), "{columns}");
    let packed =
        LAYER.replace("down.weight: f32[8,12]", "down.weight: int4g8[8,16]").replace("[12,8]", "[16,8]");
    let packed = refuse(&packed.replace("mlp: f32[n,12]", "mlp: f32[n,16]"), 4);
    assert!(
        packed.contains("node `down`: a rank would have 4 columns") && packed.contains("8 share a scale"),
        "{packed}"
    );
    let error = Graph::parse(LAYER).unwrap().shard(1).unwrap_err().to_string();
    assert!(error.contains("expected 2 to 64 ranks, found 1"), "{error}");
    let error = shard(LAYER, 2).shard(2).unwrap_err().to_string();
    assert!(error.contains("shared out already"), "{error}");
}

#[test]
fn what_each_rank_would_have_whole_is_refused_with_the_reason() {
    // A norm over all heads needs the columns of all ranks.
    let normed = LAYER.replace(
        "q.rope: f32[n,8] = rope(q,",
        "q.norm: f32[n,8] = rms_norm(q, norm.weight) {\"eps\":0.00001}\nq.rope: f32[n,8] = rope(q.norm,",
    );
    let error = refuse(&normed, 2);
    assert!(error.contains("node `q.norm`") && error.contains("`rms_norm`"), "{error}");
    // A state that another node reads whole.
    let read = LAYER.replace("output logits", "output keys = all_keys\noutput logits");
    let error = refuse(&read, 2);
    assert!(error.contains("`all_keys` is needed whole elsewhere"), "{error}");
    let alone = "graph g\ninput x: f32[n,4]\ny: f32[n,4] = silu(x)\noutput y = y\n";
    assert!(refuse(alone, 2).contains("no two products"), "{}", refuse(alone, 2));
}

#[test]
fn one_rank_has_a_graph_of_its_own_that_meets_the_others_in_memory() {
    let graph = shard(LAYER, 2).rank_graph(1, 640).unwrap();
    let text = graph.to_text();
    assert_eq!(Graph::parse(&text).unwrap(), graph, "the text form round-trips");
    assert_eq!(lines(&text, "= attention(").len(), 1);
    assert!(!text.contains("seen@0") && !text.contains("keys@0") && !text.contains("@rows.0"), "{text}");
    assert_eq!(lines(&text, "weight meeting@0: u32[640]").len(), 1);
    let reduced =
        "o: f32[n,8] = all_reduce(o@1, meeting@0, meeting@1) {\"ranks\":2,\"rank\":1} as o.all_reduce";
    assert_eq!(lines(&text, "as o.all_reduce"), [reduced]);
    let gathered = "logits: f32[n,20] = all_gather(logits@1, meeting@0, meeting@1)";
    assert_eq!(lines(&text, gathered).len(), 1, "{text}");
    // It is no graph of several ranks: nothing cuts it where they meet.
    assert_eq!(graph.ranks(), None);
    let error = shard(LAYER, 2).rank_graph(2, 640).unwrap_err().to_string();
    assert!(error.contains("not shared out to a rank 2"), "{error}");
    let wrong = text.replace("\"rank\":1", "\"rank\":2");
    let error = Graph::parse(&wrong).unwrap_err().to_string();
    assert!(error.contains("expected a rank below 2, found 2"), "{error}");
}
