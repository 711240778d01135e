// Softmax attention with grouped heads: one workgroup per query row and head. Keys are taken 64 at a time, one
// per lane; the largest score, the sum of the exponentials and the weighted sum of values are carried along, so that
// any number of keys fits.
override HEADS: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32; // elements of a head of queries and keys, at most 1024
override VALUE_DIM: u32; // elements of a head of values and results, at most 1024
override SCALE: f32;
override CAUSAL: u32; // 0: all keys of the chunk are seen
override WINDOW: u32 = 0u; // 0: no window
override CHUNK: u32 = 0xffffffffu; // one chunk of all positions
override SOFTCAP: f32 = 0.0; // 0: no cap
override HAS_SINKS: u32 = 0u;
override HAS_ALIBI: u32 = 0u;

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
    let width = KV_HEADS * VALUE_DIM;
    let column = head * VALUE_DIM + d;
    for (var j = 0u; first + j <= last; j += 4u) {
        // Lanes beyond the last key hold a chance of 0.
        let at = value_rows(first, j, last) * width + column;
        let chances = vec4<f32>(chance[j], chance[j + 1u], chance[j + 2u], chance[j + 3u]);
        sums = fma(chances, vec4<f32>(f32(v[at.x]), f32(v[at.y]), f32(v[at.z]), f32(v[at.w])), sums);
    }
    return (sums.x + sums.y) + (sums.z + sums.w);
}

// The first key that a query at `position` sees.
fn first_seen(position: u32) -> u32 {
    var first = 0u;
    if WINDOW != 0u && position >= WINDOW {
        first = position + 1u - WINDOW;
    }
    return max(first, position / CHUNK * CHUNK);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if group.y >= row_count(symbols) {
        return;
    }
    let kv_head = group.x / (HEADS / KV_HEADS);
    let row = group.y * HEADS + group.x;
    let position = position_of(group.y);
    // The keys that are seen: from `first` up to, not including, `end`.
    var first = 0u;
    var end = key_count(group.y);
    if CAUSAL != 0u && end > 0u {
        first = first_seen(position);
        end = position + 1u;
    } else if CHUNK != 0xffffffffu {
        first = group.y / CHUNK * CHUNK;
        end = min(end, first + CHUNK);
    }
    for (var d = lane; d < HEAD_DIM; d += LANES) {
        query[d] = f32(q[row * HEAD_DIM + d]);
    }
    for (var d = lane; d < VALUE_DIM; d += LANES) {
        value[d] = 0.0;
    }
    workgroupBarrier();
    var top = LOWEST;
    var total = 0.0;
    if HAS_SINKS != 0u {
        top = sink_of(group.x);
        total = 1.0;
    }
    for (var start = first; start < end; start += LANES) {
        let key = start + lane;
        var score = LOWEST;
        if key < end {
            score = score_of((key_row(group.y, lane, key) * KV_HEADS + kv_head) * HEAD_DIM);
            if HAS_ALIBI != 0u {
                score = fma(-slope_of(group.x), f32(position - key), score);
            }
        }
        let peak = max(top, largest_of(lane, score));
        let own = select(0.0, exp_accurate(score - peak), key < end);
        let shrink = exp_accurate(top - peak);
        chance[lane] = own;
        total = fma(total, shrink, sum_of(lane, own));
        let last = min(start + LANES, end) - 1u;
        for (var d = lane; d < VALUE_DIM; d += LANES) {
            value[d] = fma(value[d], shrink, weighted_sum(start, last, kv_head, d));
        }
        workgroupBarrier();
        top = peak;
    }
    for (var d = lane; d < VALUE_DIM; d += LANES) {
        // Where no key is seen, both sums are 0.
        y[row * VALUE_DIM + d] = to_act(value[d] / select(total, 1.0, first >= end));
    }
}
