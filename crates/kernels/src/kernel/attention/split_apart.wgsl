
@group(0) @binding(0) var<storage, read> q: array<act>;
@group(0) @binding(1) var<storage, read> k: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> sinks: array<u32>; // not read unless HAS_SINKS
@group(0) @binding(4) var<storage, read_write> y: array<act>;
@group(0) @binding(5) var<storage, read_write> parts: array<f32>; // VALUE_DIM sums, the largest score, the sum
@group(0) @binding(6) var<storage, read> slopes: array<f32>; // not read unless HAS_ALIBI
@group(0) @binding(7) var<uniform> symbols: Symbols;

fn query_at(i: u32) -> f32 {
    return f32(q[i]);
}

fn key_piece(j: u32, kv_head: u32, i: u32) -> vec4<u32> {
    return k[(j * KV_HEADS + kv_head) * (HEAD_DIM / PIECE) + i];
}

fn value_piece(j: u32, kv_head: u32, i: u32) -> vec4<u32> {
    return v[(j * KV_HEADS + kv_head) * (VALUE_DIM / PIECE) + i];
}

fn sink_of(head: u32) -> f32 {
    return weight_value(sinks[weight_word(head)], head);
}

fn slope_of(head: u32) -> f32 {
    return slopes[head];
}

fn extend_cache(block: u32, kv_head: u32, first: u32, end: u32, lane: u32) {
}

fn keep(at: u32, result: vec4<f32>) {
    y[at] = to_act(result.x);
    y[at + 1u] = to_act(result.y);
    y[at + 2u] = to_act(result.z);
    y[at + 3u] = to_act(result.w);
}
