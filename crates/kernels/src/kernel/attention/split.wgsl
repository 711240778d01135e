// Softmax attention, keys shared out over workgroups. A workgroup treats a block of heads that read the same keys.
//
// Few rows: it has one part of the keys of every row, and leaves sums that are not divided yet, the largest score and the
// sum of the exponentials for those who merge.
// Many rows: it has one row, all its keys, and stores the result.
override HEADS: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32; // elements of a head of queries and keys
override VALUE_DIM: u32; // elements of a head of values and results
override SCALE: f32;
override CAUSAL: u32; // 0: all keys of the chunk are seen
override WINDOW: u32 = 0u; // 0: no window
override CHUNK: u32 = 0xffffffffu; // one chunk of all positions
override SOFTCAP: f32 = 0.0; // 0: no cap
override HAS_SINKS: u32 = 0u;
override HAS_ALIBI: u32 = 0u;
// There are KEYS_N * n + KEYS_P * p + KEYS_C keys.
override KEYS_N: u32;
override KEYS_P: u32;
override KEYS_C: u32;
override BLOCK: u32; // heads of a block, at most 8
override PIECE: u32; // elements of 16 bytes: 4 of f32, 8 of f16
override KEYS: u32; // keys at a time, at most 32
override TEAMS: u32; // lanes among which the keys of a column of values are shared out
override PARTS: u32 = 32u; // of the keys of few rows, at most 64

const LANES = 128u;
const FEW = 8u;
const LOWEST = -1e30;

var<workgroup> query: array<f32, 1024>;
var<workgroup> pool: array<vec4<u32>, 512>; // keys, piece by piece; at the end sums of teams
var<workgroup> chance: array<f32, 256>; // of KEYS keys for each head

// Numbers of 16 bytes; only the first four of f32.
struct Numbers { low: vec4<f32>, high: vec4<f32> }

fn numbers(words: vec4<u32>) -> Numbers {
    if PIECE == 4u {
        return Numbers(bitcast<vec4<f32>>(words), vec4<f32>());
    }
    let low = vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
    return Numbers(low, vec4<f32>(unpack2x16float(words.z), unpack2x16float(words.w)));
}

// The first key that a query at `position` sees.
fn first_seen(position: u32) -> u32 {
    var first = 0u;
    if WINDOW != 0u && position >= WINDOW {
        first = position + 1u - WINDOW;
    }
    return max(first, position / CHUNK * CHUNK);
}

// The keys that are seen by a query row: from x up to, not including, y.
fn seen(row: u32) -> vec2<u32> {
    let all = KEYS_N * symbols.n + KEYS_P * symbols.p + KEYS_C;
    if CAUSAL != 0u {
        return vec2<u32>(first_seen(symbols.p + row), symbols.p + row + 1u);
    }
    if CHUNK != 0xffffffffu {
        let first = row / CHUNK * CHUNK;
        return vec2<u32>(first, min(all, first + CHUNK));
    }
    return vec2<u32>(0u, all);
}

// Where piece i of key j lies in the pool; turned so that lanes with different keys hit different banks.
fn place(j: u32, i: u32) -> u32 {
    return j * (HEAD_DIM / PIECE) + (i + j) % (HEAD_DIM / PIECE);
}

// The score of head `head` of the block with key j of those at hand.
fn score_of(head: u32, j: u32) -> f32 {
    var sums = vec4<f32>();
    for (var i = 0u; i < HEAD_DIM / PIECE; i++) {
        let key = numbers(pool[place(j, i)]);
        let at = head * HEAD_DIM + i * PIECE;
        sums = fma(vec4<f32>(query[at], query[at + 1u], query[at + 2u], query[at + 3u]), key.low, sums);
        if PIECE == 8u {
            let more = vec4<f32>(query[at + 4u], query[at + 5u], query[at + 6u], query[at + 7u]);
            sums = fma(more, key.high, sums);
        }
    }
    let score = SCALE * ((sums.x + sums.y) + (sums.z + sums.w));
    if SOFTCAP != 0.0 {
        return SOFTCAP * tanh_accurate(score / SOFTCAP);
    }
    return score;
}

// Sums of one head's values in one lane, and what the head has seen so far; the same in all lanes but for the sums.
struct Head { sums: Numbers, top: f32, total: f32 }

// Scores of the keys `start` to `end - 1`, at most KEYS, for all heads of the block.
fn score_all(block: u32, start: u32, end: u32, position: u32, lane: u32) {
    for (var pair = lane; pair < BLOCK * KEYS; pair += LANES) {
        let j = pair % KEYS;
        var score = LOWEST;
        if start + j < end {
            score = score_of(pair / KEYS, j);
            if HAS_ALIBI != 0u {
                score = fma(-slope_of(block * BLOCK + pair / KEYS), f32(position - start - j), score);
            }
        }
        chance[pair] = score;
    }
}

fn load_keys(kv_head: u32, start: u32, end: u32, lane: u32) {
    let pieces = HEAD_DIM / PIECE;
    for (var i = lane; i < (end - start) * pieces; i += LANES) {
        let j = i / pieces;
        pool[place(j, i % pieces)] = key_piece(start + j, kv_head, i % pieces);
    }
}

// The largest score of a head, or the one given.
fn peak_of(head: u32, top: f32) -> f32 {
    var peak = top;
    for (var j = 0u; j < KEYS; j++) {
        peak = max(peak, chance[head * KEYS + j]);
    }
    return peak;
}

fn sum_of(head: u32) -> f32 {
    var sums = vec2<f32>();
    for (var j = 0u; j + 1u < KEYS; j += 2u) {
        sums += vec2<f32>(chance[head * KEYS + j], chance[head * KEYS + j + 1u]);
    }
    return sums.x + sums.y + select(0.0, chance[head * KEYS + KEYS - 1u], KEYS % 2u == 1u);
}

// Adds up the sums of all teams for one head, and stores them: as they are with the largest score and the sum of the
// exponentials, or divided.
fn give(head: Head, row: u32, which: u32, part: u32, few: bool, none: bool, lane: u32) {
    let columns = VALUE_DIM / PIECE;
    let team = lane / columns;
    workgroupBarrier();
    if team < TEAMS {
        let at = (team * columns + lane % columns) * (PIECE / 4u);
        pool[at] = bitcast<vec4<u32>>(head.sums.low);
        if PIECE == 8u {
            pool[at + 1u] = bitcast<vec4<u32>>(head.sums.high);
        }
    }
    workgroupBarrier();
    for (var i = lane; i < VALUE_DIM / 4u; i += LANES) {
        var sum = vec4<f32>();
        for (var t = 0u; t < TEAMS; t++) {
            sum += bitcast<vec4<f32>>(pool[t * (VALUE_DIM / 4u) + i]);
        }
        if few {
            let at = ((row * HEADS + which) * PARTS + part) * (VALUE_DIM + 2u) + 4u * i;
            parts[at] = sum.x;
            parts[at + 1u] = sum.y;
            parts[at + 2u] = sum.z;
            parts[at + 3u] = sum.w;
        } else {
            let at = (row * HEADS + which) * VALUE_DIM + 4u * i;
            // Where no key is seen, the sum is 0.
            let result = select(sum / head.total, vec4<f32>(), none);
            keep(at, result);
        }
    }
    if few && lane == 0u {
        let at = ((row * HEADS + which) * PARTS + part) * (VALUE_DIM + 2u) + VALUE_DIM;
        parts[at] = head.top;
        parts[at + 1u] = head.total;
    }
}

// One row, and of its keys those from `first` to `end - 1`.
fn attend(block: u32, row: u32, part: u32, few: bool, first: u32, end: u32, none: bool, lane: u32) {
    let kv_head = block * BLOCK / (HEADS / KV_HEADS);
    let columns = VALUE_DIM / PIECE;
    let team = lane / columns;
    var heads: array<Head, 8>;
    for (var h = 0u; h < BLOCK; h++) {
        heads[h] = Head(Numbers(), LOWEST, 0.0);
        if HAS_SINKS != 0u && part == 0u {
            let which = block * BLOCK + h;
            heads[h].top = sink_of(which);
            heads[h].total = 1.0;
        }
    }
    workgroupBarrier();
    for (var d = lane; d < BLOCK * HEAD_DIM; d += LANES) {
        query[d] = query_at((row * HEADS + block * BLOCK) * HEAD_DIM + d);
    }
    extend_cache(block, kv_head, first, end, lane);
    for (var start = first; start < end; start += KEYS) {
        let last = min(start + KEYS, end);
        load_keys(kv_head, start, last, lane);
        workgroupBarrier();
        score_all(block, start, last, symbols.p + row, lane);
        workgroupBarrier();
        for (var h = 0u; h < BLOCK; h++) {
            let peak = peak_of(h, heads[h].top);
            let shrink = exp_accurate(heads[h].top - peak);
            heads[h].top = peak;
            heads[h].total *= shrink;
            heads[h].sums.low *= shrink;
            heads[h].sums.high *= shrink;
        }
        workgroupBarrier();
        for (var pair = lane; pair < BLOCK * KEYS; pair += LANES) {
            // The head's largest score is known to every lane, but indexed here by what only this lane knows.
            var top = LOWEST;
            for (var h = 0u; h < BLOCK; h++) {
                top = select(top, heads[h].top, h == pair / KEYS);
            }
            chance[pair] = select(0.0, exp_accurate(chance[pair] - top), start + pair % KEYS < last);
        }
        workgroupBarrier();
        if team < TEAMS {
            for (var j = start + team; j < last; j += TEAMS) {
                let value = numbers(value_piece(j, kv_head, lane % columns));
                for (var h = 0u; h < BLOCK; h++) {
                    let share = vec4<f32>(chance[h * KEYS + j - start]);
                    heads[h].sums.low = fma(share, value.low, heads[h].sums.low);
                    heads[h].sums.high = fma(share, value.high, heads[h].sums.high);
                }
            }
        }
        for (var h = 0u; h < BLOCK; h++) {
            heads[h].total += sum_of(h);
        }
        workgroupBarrier();
    }
    for (var h = 0u; h < BLOCK; h++) {
        give(heads[h], row, block * BLOCK + h, part, few, none, lane);
    }
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let rows = row_count(symbols);
    let block = group.x / PARTS;
    let part = group.x % PARTS;
    if rows > FEW {
        let row = group.y * PARTS + part;
        if row < rows {
            let keys = seen(row);
            attend(block, row, 0u, false, keys.x, keys.y, keys.x >= keys.y, lane);
        }
        return;
    }
    for (var row = 0u; row < rows; row++) {
        let keys = seen(row);
        let span = max(keys.y, keys.x) - keys.x;
        // Whole steps of KEYS in each part, so that few keys make few parts.
        let step = (span + PARTS * KEYS - 1u) / (PARTS * KEYS) * KEYS;
        let first = keys.x + part * step;
        if first < keys.y {
            attend(block, row, part, true, first, min(first + step, keys.y), false, lane);
        } else if lane == 0u {
            // Parts without keys weigh nothing.
            for (var h = 0u; h < BLOCK; h++) {
                let at = ((row * HEADS + block * BLOCK + h) * PARTS + part) * (VALUE_DIM + 2u) + VALUE_DIM;
                parts[at] = LOWEST;
                parts[at + 1u] = 0.0;
            }
        }
    }
}
