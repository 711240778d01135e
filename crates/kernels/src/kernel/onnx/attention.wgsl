// Softmax attention with grouped heads. A workgroup treats four rows of queries of one head, each of whose elements are one
// vector. Keys are taken 64 at a time, one for each lane; the largest score, the sum of the exponentials and the weighted
// sum of values are carried along, so that any number of keys fits.
override HEADS: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32; // elements of a head of queries and keys, at most WIDTH
override VALUE_DIM: u32; // elements of a head of values and results, at most WIDTH
override QUERIES: u32; // rows
override KEYS: u32; // most of them
override SCALE: f32;
override SOFTCAP: f32; // 0: no cap
override CAUSAL: u32; // 1: a query sees no keys behind its own
override WINDOW: u32; // keys that a query sees, its own and those before it; 0: all
override AHEAD: u32; // keys before that of the first query, unless LENGTHS
override LENGTHS: u32; // how many keys there are: 0: KEYS; 1: lengths[n] + 1; 2: lengths[n] of 64 bits. The last are those of the queries
override Q_FROM: u32; // first element, and elements from one to the next of the batch, the heads, the rows
override Q_BATCH: u32;
override Q_HEAD: u32;
override Q_ROW: u32;
override K_FROM: u32;
override K_BATCH: u32;
override K_HEAD: u32;
override K_ROW: u32;
override V_FROM: u32;
override V_BATCH: u32;
override V_HEAD: u32;
override V_ROW: u32;
override Y_FROM: u32;
override Y_BATCH: u32;
override Y_HEAD: u32;
override Y_ROW: u32;
override HAS_BIAS: u32;
override BIAS_BATCH: u32;
override BIAS_HEAD: u32;
override BIAS_ROW: u32;
override BIAS_KEY: u32;
override MASK: u32; // 0: none; 1: truths, 0 hides; 2: numbers, FILTER where not positive; 3: lengths, FILTER from there on; 4: ends and starts
override MASK_BATCH: u32;
override MASK_HEAD: u32;
override MASK_ROW: u32;
override MASK_KEY: u32;
override FILTER: f32;
override SINKS: u32; // a score beside the keys: 0: none, 1: given for each head, 2: 0

@group(0) @binding(0) var<storage, read> q: array<asked>;
@group(0) @binding(1) var<storage, read> k: array<kept_key>;
@group(0) @binding(2) var<storage, read> v: array<kept_value>;
@group(0) @binding(3) var<storage, read> bias: array<act>; // not read unless HAS_BIAS
@group(0) @binding(4) var<storage, read> mask: array<u32>; // not read unless MASK; more of the batch for 4
@group(0) @binding(5) var<storage, read> lengths: array<u32>; // not read unless LENGTHS
@group(0) @binding(6) var<storage, read> sinks: array<act>; // not read unless SINKS is 1
@group(0) @binding(7) var<storage, read_write> y: array<act>;
@group(0) @binding(8) var<uniform> symbols: Symbols;

const LANES = 64u;
const WIDTH = 384u;
const LOWEST = -0x1.fffffep+127f;
const INFINITE = 0xff800000u; // the bits of the score of a key that a bias hides

var<workgroup> query: array<vec4<f32>, WIDTH>;
var<workgroup> value: array<vec4<f32>, WIDTH>;
var<workgroup> chance: array<vec4<f32>, LANES>;
var<workgroup> partial: array<vec4<f32>, LANES>;

// The largest of all lanes' values, for each row.
fn largest_of(lane: u32, own: vec4<f32>) -> vec4<f32> {
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

// The sum of all lanes' values, for each row.
fn sum_of(lane: u32, own: vec4<f32>) -> vec4<f32> {
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

fn exponentials(v: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(exp_accurate(v.x), exp_accurate(v.y), exp_accurate(v.z), exp_accurate(v.w));
}

// The scores of the key whose elements begin at `start`, for each row.
fn scores_of(start: u32) -> vec4<f32> {
    var sums = vec4<f32>();
    var more = vec4<f32>();
    var d = 0u;
    for (; d + 4u <= HEAD_DIM; d += 4u) {
        let at = start + d;
        let keys = vec4<f32>(f32(k[at]), f32(k[at + 1u]), f32(k[at + 2u]), f32(k[at + 3u]));
        sums = fma(query[d], vec4<f32>(keys.x), sums);
        more = fma(query[d + 1u], vec4<f32>(keys.y), more);
        sums = fma(query[d + 2u], vec4<f32>(keys.z), sums);
        more = fma(query[d + 3u], vec4<f32>(keys.w), more);
    }
    for (; d < HEAD_DIM; d++) {
        sums = fma(query[d], vec4<f32>(f32(k[start + d])), sums);
    }
    let scores = SCALE * (sums + more);
    if SOFTCAP != 0.0 {
        let c = scores / SOFTCAP;
        return SOFTCAP * vec4<f32>(tanh_accurate(c.x), tanh_accurate(c.y), tanh_accurate(c.z), tanh_accurate(c.w));
    }
    return scores;
}

// What a mask adds to the score of a key; hidden keys have the second part.
fn masked(n: u32, head: u32, row: u32, key: u32) -> vec2<f32> {
    if MASK == 0u {
        return vec2<f32>();
    }
    if MASK == 3u || MASK == 4u {
        let end = bitcast<i32>(mask[n]);
        var start = 0;
        if MASK == 4u {
            start = bitcast<i32>(mask[MASK_BATCH + n]);
        }
        return vec2<f32>(select(FILTER, 0.0, i32(key) < end && i32(key) >= start), 0.0);
    }
    let at = n * MASK_BATCH + head * MASK_HEAD + row * MASK_ROW + key * MASK_KEY;
    if MASK == 1u {
        return vec2<f32>(0.0, select(1.0, 0.0, ((mask[at / 4u] >> (at % 4u * 8u)) & 255u) != 0u));
    }
    return vec2<f32>(select(FILTER, 0.0, bitcast<i32>(mask[at]) > 0), 0.0);
}

// The sum over keys `first` to `last`, at most 64, of chances times element `d` of the values of a head that begins at `start`.
fn weighted_sums(first: u32, last: u32, start: u32, d: u32) -> vec4<f32> {
    var sums = vec4<f32>();
    var more = vec4<f32>();
    for (var j = 0u; first + j <= last; j += 2u) {
        // A lane beyond the last key holds chances of 0.
        sums = fma(chance[j], vec4<f32>(f32(v[start + (first + j) * V_ROW + d])), sums);
        more = fma(chance[j + 1u], vec4<f32>(f32(v[start + min(first + j + 1u, last) * V_ROW + d])), more);
    }
    return sums + more;
}

// Keys that are there for element n of the batch, and those of them before the first query.
fn seen(n: u32) -> vec2<i32> {
    if LENGTHS == 0u {
        return vec2<i32>(i32(KEYS), i32(AHEAD));
    }
    var all = 0;
    if LENGTHS == 1u {
        all = clamp(bitcast<i32>(lengths[n]), -1, 0x3fffffff) + 1;
    } else {
        all = clamp(narrowed(lengths[2u * n], lengths[2u * n + 1u]), 0, 0x3fffffff);
    }
    return vec2<i32>(min(all, i32(KEYS)), all - i32(QUERIES));
}

// Writes the weighted sums of values of up to 4 rows, divided by the sums of their weights.
fn store_shares(lane: u32, n: u32, head: u32, first_row: u32, total: vec4<f32>) {
    for (var d = lane; d < VALUE_DIM; d += LANES) {
        let sums = value[d];
        for (var r = 0u; r < 4u && first_row + r < QUERIES; r++) {
            // Where no key is seen, the sum is 0.
            var result = 0.0;
            if total[r] > 0.0 {
                result = sums[r] / total[r];
            }
            y[Y_FROM + n * Y_BATCH + head * Y_HEAD + (first_row + r) * Y_ROW + d] = to_act(result);
        }
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let head = group.x;
    let n = group.z;
    let kv_head = head / (HEADS / KV_HEADS);
    // Rows beyond the last are it again, and are not written.
    let rows = min(vec4<u32>(group.y * 4u) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(QUERIES - 1u));
    let there = seen(n);
    let own = vec4<i32>(rows) + vec4<i32>(there.y);
    // The keys that some row sees: from `first` up to, not including, `end`.
    var first = 0u;
    var end = u32(max(there.x, 0));
    if CAUSAL == 1u {
        end = min(end, u32(max(own.w + 1, 0)));
        if WINDOW != 0u {
            first = u32(max(own.x + 1 - i32(WINDOW), 0));
        }
    }
    let origin = vec4<u32>(Q_FROM + n * Q_BATCH + head * Q_HEAD) + rows * Q_ROW;
    for (var d = lane; d < HEAD_DIM; d += LANES) {
        query[d] = vec4<f32>(f32(q[origin.x + d]), f32(q[origin.y + d]), f32(q[origin.z + d]), f32(q[origin.w + d]));
    }
    for (var d = lane; d < VALUE_DIM; d += LANES) {
        value[d] = vec4<f32>();
    }
    workgroupBarrier();
    var top = vec4<f32>(LOWEST);
    var total = vec4<f32>();
    if SINKS != 0u {
        top = vec4<f32>();
        if SINKS == 1u {
            top = vec4<f32>(f32(sinks[head]));
        }
        total = vec4<f32>(1.0);
    }
    let values = V_FROM + n * V_BATCH + kv_head * V_HEAD;
    for (var start = first; start < end; start += LANES) {
        let key = start + lane;
        var scores = vec4<f32>(LOWEST);
        var visible = vec4<f32>();
        if key < end {
            scores = scores_of(K_FROM + n * K_BATCH + kv_head * K_HEAD + key * K_ROW);
            visible = vec4<f32>(1.0);
            for (var r = 0u; r < 4u; r++) {
                let place = i32(key);
                if CAUSAL == 1u && (place > own[r] || (WINDOW != 0u && place + i32(WINDOW) <= own[r])) {
                    visible[r] = 0.0;
                }
                if HAS_BIAS == 1u {
                    let at = n * BIAS_BATCH + head * BIAS_HEAD + rows[r] * BIAS_ROW + key * BIAS_KEY;
                    let b = f32(bias[at]);
                    if bitcast<u32>(b) == INFINITE {
                        visible[r] = 0.0;
                    } else {
                        scores[r] += b;
                    }
                }
                let more = masked(n, head, rows[r], key);
                scores[r] += more.x;
                visible[r] *= 1.0 - more.y;
            }
        }
        scores = select(scores, vec4<f32>(LOWEST), visible == vec4<f32>());
        let peak = max(top, largest_of(lane, scores));
        let weights = exponentials(scores - peak) * visible;
        let shrink = exponentials(top - peak);
        chance[lane] = weights;
        total = fma(total, shrink, sum_of(lane, weights));
        let last = min(start + LANES, end) - 1u;
        for (var d = lane; d < VALUE_DIM; d += LANES) {
            value[d] = fma(value[d], shrink, weighted_sums(start, last, values, d));
        }
        workgroupBarrier();
        top = peak;
    }
    store_shares(lane, n, head, group.y * 4u, total);
}
