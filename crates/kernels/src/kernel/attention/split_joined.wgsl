
// One row whose queries and keys are still to be rotated, and whose keys and values are still to be appended. Heads are
// rotated as a whole, the pairs half a head apart; HEAD_DIM is VALUE_DIM, and halves consist of whole pieces.
@group(0) @binding(0) var<storage, read> q: array<act>;
@group(0) @binding(1) var<storage, read> new_k: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> new_v: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> angles: array<f32>; // cosines, then sines
@group(0) @binding(4) var<storage, read_write> k: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> v: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> parts: array<f32>; // VALUE_DIM sums, the largest score, the sum
@group(0) @binding(7) var<uniform> symbols: Symbols;

fn query_at(i: u32) -> f32 {
    let half = HEAD_DIM / 2u;
    let d = i % HEAD_DIM;
    let first = i - d + d % half;
    let a = f32(q[first]);
    let b = f32(q[first + half]);
    let cosine = angles[d % half];
    let sine = angles[half + d % half];
    return f32(to_act(select(a * cosine - b * sine, b * cosine + a * sine, d >= half)));
}

fn words_of(v: Numbers) -> vec4<u32> {
    if PIECE == 4u {
        return bitcast<vec4<u32>>(v.low);
    }
    let low = vec2<u32>(pack2x16float(v.low.xy), pack2x16float(v.low.zw));
    return vec4<u32>(low, pack2x16float(v.high.xy), pack2x16float(v.high.zw));
}

// Four numbers of a half, rotated: `first` of the first half, and what is stored of them.
fn turned(a: vec4<f32>, b: vec4<f32>, angle: u32, second: bool) -> vec4<f32> {
    let half = HEAD_DIM / 2u;
    let cosine = vec4<f32>(angles[angle], angles[angle + 1u], angles[angle + 2u], angles[angle + 3u]);
    let at = half + angle;
    let sine = vec4<f32>(angles[at], angles[at + 1u], angles[at + 2u], angles[at + 3u]);
    let r = select(a * cosine - b * sine, b * cosine + a * sine, second);
    return vec4<f32>(f32(to_act(r.x)), f32(to_act(r.y)), f32(to_act(r.z)), f32(to_act(r.w)));
}

// Piece i of the new key.
fn new_key(kv_head: u32, i: u32) -> vec4<u32> {
    let count = HEAD_DIM / PIECE;
    let half = count / 2u;
    let a = numbers(new_k[kv_head * count + i % half]);
    let b = numbers(new_k[kv_head * count + half + i % half]);
    let angle = i % half * PIECE;
    var rotated = Numbers();
    rotated.low = turned(a.low, b.low, angle, i >= half);
    if PIECE == 8u {
        rotated.high = turned(a.high, b.high, angle + 4u, i >= half);
    }
    return words_of(rotated);
}

fn key_piece(j: u32, kv_head: u32, i: u32) -> vec4<u32> {
    if j == symbols.p {
        return new_key(kv_head, i);
    }
    return k[(j * KV_HEADS + kv_head) * (HEAD_DIM / PIECE) + i];
}

fn value_piece(j: u32, kv_head: u32, i: u32) -> vec4<u32> {
    if j == symbols.p {
        return new_v[kv_head * (VALUE_DIM / PIECE) + i];
    }
    return v[(j * KV_HEADS + kv_head) * (VALUE_DIM / PIECE) + i];
}

fn sink_of(head: u32) -> f32 {
    return 0.0;
}

fn slope_of(head: u32) -> f32 {
    return 0.0;
}

// The first of the blocks that read the same keys appends, where the new key is among its own.
fn extend_cache(block: u32, kv_head: u32, first: u32, end: u32, lane: u32) {
    let p = symbols.p;
    if block * BLOCK % (HEADS / KV_HEADS) == 0u && first <= p && p < end {
        let count = HEAD_DIM / PIECE;
        for (var i = lane; i < count; i += LANES) {
            k[(p * KV_HEADS + kv_head) * count + i] = new_key(kv_head, i);
            v[(p * KV_HEADS + kv_head) * count + i] = new_v[kv_head * count + i];
        }
    }
}

fn keep(at: u32, result: vec4<f32>) {
}
