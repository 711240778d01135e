//! Every rewrite rule keeps what a graph computes: equal bits on the reference, in `f32` and `f64`, over a prefill and
//! decode steps.

use crate::common::random;
use std::collections::HashMap;
use tapml_graph::rewrite::RULES;
use tapml_graph::{Applied, DType, Graph, Symbols, fuse, rewrite};
use tapml_reference::{Real, Value, empty_states, run_graph};

/// One transformer layer that reads `x` and gives `{layer}.out`. Width 12, two query heads on one key head of 6.
fn layer(layer: &str, x: &str) -> String {
    const TEXT: &str = r#"
weight L.norm1: bf16[12]
L.h: f32[n,12] = rms_norm(X, L.norm1) {"eps":0.001}
weight L.wq: bf16[12,12]
L.q: f32[n,12] = linear(L.h, L.wq)
weight L.wk: bf16[6,12]
L.k: f32[n,6] = linear(L.h, L.wk)
weight L.wv: bf16[6,12]
L.v: f32[n,6] = linear(L.h, L.wv)
L.rq: f32[n,12] = rope(L.q, angles) {"head_dim":6,"rotary_dim":4,"interleaved":false}
L.rk: f32[n,6] = rope(L.k, angles) {"head_dim":6,"rotary_dim":4,"interleaved":false}
state L.keys: f32[p,6] -> L.all_keys
L.all_keys: f32[n+p,6] = append(L.keys, L.rk)
state L.values: f32[p,6] -> L.all_values
L.all_values: f32[n+p,6] = append(L.values, L.v)
L.a: f32[n,12] = attention(L.rq, L.all_keys, L.all_values) {"heads":2,"kv_heads":1,"head_dim":6,"scale":0.4}
L.unused: f32[n,12] = silu(L.a)
weight L.wo: bf16[12,12]
L.o: f32[n,12] = linear(L.a, L.wo)
L.sum1: f32[n,12] = add(X, L.o)
weight L.norm2: bf16[12]
L.h2: f32[n,12] = rms_norm(L.sum1, L.norm2) {"eps":0.001}
weight L.gate: bf16[20,12]
L.g: f32[n,20] = linear(L.h2, L.gate)
L.act: f32[n,20] = silu(L.g)
weight L.up: bf16[20,12]
L.u: f32[n,20] = linear(L.h2, L.up)
L.m: f32[n,20] = mul(L.act, L.u)
weight L.down: bf16[12,20]
L.d: f32[n,12] = linear(L.m, L.down)
L.sum2: f32[n,12] = add(L.sum1, L.d)
weight L.router: bf16[5,12]
L.scores: f32[n,5] = linear(L.h2, L.router)
L.experts: u32[n,2], L.shares: f32[n,2] = route(L.scores) {"k":2,"scores":"softmax","normalize":true} as L.route
weight L.gates: bf16[5,7,12]
L.eg: f32[n,14] = expert_linear(L.h2, L.gates, L.experts)
L.ea: f32[n,14] = silu(L.eg)
weight L.ups: bf16[5,7,12]
L.eu: f32[n,14] = expert_linear(L.h2, L.ups, L.experts)
L.em: f32[n,14] = mul(L.ea, L.eu)
weight L.downs: bf16[5,12,7]
L.ed: f32[n,24] = expert_linear(L.em, L.downs, L.experts)
L.sparse: f32[n,12] = combine(L.ed, L.shares) {"k":2}
L.out1: f32[n,12] = add(L.sum2, L.sparse)
weight L.packed: int8g4[7,12]
L.pg: f32[n,7] = linear(L.out1, L.packed)
L.pa: f32[n,7] = silu(L.pg)
weight L.wide: int8g4[7,12]
L.pu: f32[n,7] = linear(L.out1, L.wide)
L.pm: f32[n,7] = mul(L.pa, L.pu)
weight L.stack: int8g12z[5,12,12]
L.packed_experts: f32[n,24] = expert_linear(L.out1, L.stack, L.experts)
L.packed_sum: f32[n,12] = combine(L.packed_experts, L.shares) {"k":2}
weight L.turned: bf16[12,7]
L.back: f32[n,12] = linear(L.pm, L.turned)
L.out2: f32[n,12] = add(L.out1, L.back)
L.out: f32[n,12] = add(L.out2, L.packed_sum)
"#;
    TEXT.trim_start().replace("L.", &format!("{layer}.")).replace('X', x)
}

fn toy() -> Graph {
    let head = r#"graph toy
input ids: u32[n]
weight table: bf16[9,12]
x: f32[n,12] = embedding(ids, table) {"dtype":"f32"}
angles: f32[n,4] = rope_angles() {"inv_freq":[1.0,0.1],"scale":1.0}
"#;
    let tail = r#"weight norm: bf16[12]
h: f32[n,12] = rms_norm(b.out, norm) {"eps":0.001}
logits: f32[n,9] = linear(h, table)
output logits = logits
output hidden = a.out
"#;
    Graph::parse(&[head, &layer("a", "x"), &layer("b", "a.out"), tail].concat()).unwrap()
}

fn weight<T: Real>(graph: &Graph, name: &str) -> Value<T> {
    let id = graph.find_value(name).unwrap();
    let ty = &graph.value(id).ty;
    let shape = ty.sizes(&Symbols::new()).unwrap();
    if ty.dtype == DType::U32 {
        let words = (0..shape.iter().product::<usize>()).map(|i| 0x7f81_8280 + 3 * i as u32).collect();
        return Value::indices(shape, words).unwrap();
    }
    let values = random(name.bytes().fold(0, u8::wrapping_add), shape.iter().product());
    Value::float(shape, values.iter().map(|&v| T::from_f64(v)).collect()).unwrap()
}

/// Bits of all results and states of a prefill of 5 tokens and two decode steps.
fn results<T: Real>(graph: &Graph) -> Vec<(String, Vec<u64>)> {
    let mut states = empty_states::<T>(graph).unwrap();
    let mut found = Vec::new();
    for (ids, cached) in [(vec![3, 1, 4, 1, 5], 0), (vec![8], 5), (vec![2], 6)] {
        let symbols = Symbols::np(ids.len() as u64, cached);
        let inputs = HashMap::from([("ids".to_string(), Value::ids(ids))]);
        let weights = |name: &str| Ok(weight(graph, name));
        let run = run_graph::<T>(graph, &symbols, &inputs, &weights, states, None).unwrap();
        let bits =
            |v: &Value<T>| v.as_float().unwrap().values().iter().map(|v| v.to_f64().to_bits()).collect();
        found.extend(run.outputs.iter().map(|(name, value)| (name.clone(), bits(value))));
        found.extend(run.states.iter().map(|value| ("state".to_string(), bits(value))));
        states = run.states;
    }
    found
}

#[test]
fn each_rule_alone_and_all_together_keep_every_bit() {
    let plain = toy();
    let (narrow, wide) = (results::<f32>(&plain), results::<f64>(&plain));
    assert!(
        wide.iter()
            .any(|(name, bits)| name == "logits" && bits.iter().any(|&b| f64::from_bits(b).abs() > 0.01))
    );
    for rule in RULES {
        let (changed, applied): (Graph, Vec<Applied>) = rewrite(&plain, &[rule.name]).unwrap();
        assert!(!applied.is_empty(), "rule `{}` has no place in the toy graph", rule.name);
        assert_eq!(results::<f32>(&changed), narrow, "{}", rule.name);
        assert_eq!(results::<f64>(&changed), wide, "{}", rule.name);
    }
    let fused = fuse(&plain).unwrap();
    assert!(fused.nodes().len() < plain.nodes().len());
    assert_eq!(results::<f32>(&fused), narrow);
    assert_eq!(results::<f64>(&fused), wide);
}

#[test]
fn inlining_definitions_undoes_fusing_bit_for_bit() {
    let fused = fuse(&toy()).unwrap();
    let inlined = fused.inline_definitions().unwrap();
    assert!(inlined.nodes().iter().all(|n| n.op.definition(&inlined.input_types(n)).is_none()));
    assert_eq!(results::<f32>(&inlined), results::<f32>(&fused));
    assert_eq!(results::<f64>(&inlined), results::<f64>(&fused));
}
