// Causal softmax attention with grouped heads: one workgroup per query row and head. Keys are taken 64 at a time, one
// per lane; the largest score, the sum of the exponentials and the weighted sum of values are carried along, so that
// any number of keys fits.
override HEADS: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32; // at most 1024
override SCALE: f32;
override WINDOW: u32 = 0u; // 0: no window
override SOFTCAP: f32 = 0.0; // 0: no cap

@group(0) @binding(0) var<storage, read> q: array<act>;
@group(0) @binding(1) var<storage, read> k: array<act>;
@group(0) @binding(2) var<storage, read> v: array<act>;
@group(0) @binding(3) var<storage, read_write> y: array<act>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

const LANES = 64u;
const LOWEST = -1e30;

var<workgroup> query: array<f32, 1024>;
var<workgroup> value: array<f32, 1024>;
var<workgroup> chance: array<f32, LANES>;
var<workgroup> partial: array<f32, LANES>;

// The largest of all lanes' values.
fn largest_of(lane: u32, own: f32) -> f32 {
    partial[lane] = own;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step >>= 1u) {
        if lane < step {
            partial[lane] = max(partial[lane], partial[lane + step]);
        }
        workgroupBarrier();
    }
    let result = partial[0];
    workgroupBarrier();
    return result;
}

// The sum of all lanes' values.
fn sum_of(lane: u32, own: f32) -> f32 {
    partial[lane] = own;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step >>= 1u) {
        if lane < step {
            partial[lane] += partial[lane + step];
        }
        workgroupBarrier();
    }
    let result = partial[0];
    workgroupBarrier();
    return result;
}

// The score of the key whose elements begin at `start`.
fn score_of(start: u32) -> f32 {
    var sums = vec4<f32>();
    var d = 0u;
    for (; d + 4u <= HEAD_DIM; d += 4u) {
        let a = vec4<f32>(query[d], query[d + 1u], query[d + 2u], query[d + 3u]);
        let at = start + d;
        sums = fma(a, vec4<f32>(f32(k[at]), f32(k[at + 1u]), f32(k[at + 2u]), f32(k[at + 3u])), sums);
    }
    for (; d < HEAD_DIM; d++) {
        sums.x = fma(query[d], f32(k[start + d]), sums.x);
    }
    let score = SCALE * ((sums.x + sums.y) + (sums.z + sums.w));
    if SOFTCAP != 0.0 {
        return SOFTCAP * tanh_accurate(score / SOFTCAP);
    }
    return score;
}

// The sum over keys `first` to `last`, at most 64, of chance times value element `d` of key/value head `head`.
fn weighted_sum(first: u32, last: u32, head: u32, d: u32) -> f32 {
    var sums = vec4<f32>();
    let width = KV_HEADS * HEAD_DIM;
    let column = head * HEAD_DIM + d;
    for (var j = 0u; first + j <= last; j += 4u) {
        // Lanes beyond the last key hold a chance of 0.
        let at = min(vec4<u32>(first + j) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(last)) * width + column;
        let chances = vec4<f32>(chance[j], chance[j + 1u], chance[j + 2u], chance[j + 3u]);
        sums = fma(chances, vec4<f32>(f32(v[at.x]), f32(v[at.y]), f32(v[at.z]), f32(v[at.w])), sums);
    }
    return (sums.x + sums.y) + (sums.z + sums.w);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if group.y >= row_count(symbols) {
        return;
    }
    let kv_head = group.x / (HEADS / KV_HEADS);
    let row = (group.y * HEADS + group.x) * HEAD_DIM;
    let position = symbols.p + group.y;
    var first = 0u;
    if WINDOW != 0u && position >= WINDOW {
        first = position + 1u - WINDOW;
    }
    for (var d = lane; d < HEAD_DIM; d += LANES) {
        query[d] = f32(q[row + d]);
        value[d] = 0.0;
    }
    workgroupBarrier();
    var top = LOWEST;
    var total = 0.0;
    for (var start = first; start <= position; start += LANES) {
        let key = start + lane;
        var score = LOWEST;
        if key <= position {
            score = score_of((key * KV_HEADS + kv_head) * HEAD_DIM);
        }
        let peak = max(top, largest_of(lane, score));
        let own = select(0.0, exp_accurate(score - peak), key <= position);
        let shrink = exp_accurate(top - peak);
        chance[lane] = own;
        total = fma(total, shrink, sum_of(lane, own));
        let last = min(start + LANES - 1u, position);
        for (var d = lane; d < HEAD_DIM; d += LANES) {
            value[d] = fma(value[d], shrink, weighted_sum(start, last, kv_head, d));
        }
        workgroupBarrier();
        top = peak;
    }
    for (var d = lane; d < HEAD_DIM; d += LANES) {
        y[row + d] = to_act(value[d] / total);
    }
}
