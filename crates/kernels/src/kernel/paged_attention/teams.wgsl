// Softmax attention of rows of several texts, whose keys and values lie in pages. Workgroup (x, y) has block x of heads that
// read the same keys, of row y. A team of lanes takes four keys at a time, each lane eight elements of them, so that scores
// meet within subgroups and nothing waits for the workgroup before the end. Teams share out the keys by their positions: a
// row adds up in the same order, whatever rows are beside it. What is done for each head stands behind this text.
override HEADS: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32; // elements of a head: a multiple of 8, at most 256
override VALUE_DIM: u32; // elements of a head's value: a multiple of 8, at most HEAD_DIM
override SCALE: f32;
override WINDOW: u32 = 0u; // 0: no window
override CHUNK: u32 = 0xffffffffu; // one chunk of all positions
override SOFTCAP: f32 = 0.0; // 0: no cap
override HAS_SINKS: u32 = 0u;
override HAS_ALIBI: u32 = 0u;
override PAGE: u32; // positions in one page
override TEXTS: u32; // rows of `pages`
override BLOCKS: u32; // pages of a text
override BLOCK: u32; // heads of a block, at most 8
override PIECE: u32; // elements of 16 bytes: 4 of f32, 8 of f16
override TEAM: u32; // lanes of a team: a power of two, at least 4 and at most a subgroup

@group(0) @binding(0) var<storage, read> q: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> k: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> positions: array<u32>;
@group(0) @binding(4) var<storage, read> texts: array<u32>;
@group(0) @binding(5) var<storage, read> pages: array<u32>;
@group(0) @binding(6) var<storage, read> extra: array<u32>; // sinks or slopes, not read unless there are any
@group(0) @binding(7) var<storage, read_write> y: array<act>;
@group(0) @binding(8) var<uniform> symbols: Symbols;

const LANES = 256u;
const LOWEST = -1e30;

var<workgroup> pool: array<vec4<f32>, 512>; // one head's sums of all teams
var<workgroup> tops: array<f32, 512>; // the largest scores of each head's teams
var<workgroup> totals: array<f32, 512>;

// Eight numbers of a head.
struct Eight { low: vec4<f32>, high: vec4<f32> }

// The same as they are stored; only the first four words of f16.
struct Words { low: vec4<u32>, high: vec4<u32> }

// What a lane has of a head: eight elements of the query and of the sums; the largest score of its team; and the sum of the
// exponentials of those keys whose scores come to this lane.
struct Head { query: Eight, sums: Eight, top: f32, total: f32 }

fn numbers(words: Words) -> Eight {
    if PIECE == 4u {
        return Eight(bitcast<vec4<f32>>(words.low), bitcast<vec4<f32>>(words.high));
    }
    let low = vec4<f32>(unpack2x16float(words.low.x), unpack2x16float(words.low.y));
    return Eight(low, vec4<f32>(unpack2x16float(words.low.z), unpack2x16float(words.low.w)));
}

fn query_words(at: u32) -> Words {
    if PIECE == 4u {
        return Words(q[2u * at], q[2u * at + 1u]);
    }
    return Words(q[at], vec4<u32>());
}

// Eight elements of the key in a row of the cache, those at `at` of the row.
fn key_words(row: u32, at: u32) -> Words {
    let start = row * (KV_HEADS * (HEAD_DIM / 8u)) + at;
    if PIECE == 4u {
        return Words(k[2u * start], k[2u * start + 1u]);
    }
    return Words(k[start], vec4<u32>());
}

fn value_words(row: u32, at: u32) -> Words {
    let start = row * (KV_HEADS * (VALUE_DIM / 8u)) + at;
    if PIECE == 4u {
        return Words(v[2u * start], v[2u * start + 1u]);
    }
    return Words(v[start], vec4<u32>());
}

// The first key that a query at `position` sees.
fn first_seen(position: u32) -> u32 {
    var first = 0u;
    if WINDOW != 0u && position >= WINDOW {
        first = position + 1u - WINDOW;
    }
    return max(first, position / CHUNK * CHUNK);
}

// The rows of the cache that four keys of a text lie in; those behind the last one that is seen are it again.
fn rows_of(table: u32, keys: vec4<u32>, last: u32) -> vec4<u32> {
    let key = min(keys, vec4<u32>(last));
    let at = vec4<u32>(table) + key / PAGE;
    return vec4<u32>(pages[at.x], pages[at.y], pages[at.z], pages[at.w]) * PAGE + key % PAGE;
}

fn dot_of(a: Eight, b: Eight) -> f32 {
    let sums = fma(a.high, b.high, a.low * b.low);
    return (sums.x + sums.y) + (sums.z + sums.w);
}

// The sum over a team of the product with the key that is this lane's: lane i of a team has key i % 4.
fn team_sum(products: vec4<f32>, own: u32) -> f32 {
    let odd = (own & 1u) != 0u;
    let kept = select(products.xz, products.yw, odd);
    let pair = kept + subgroupShuffleXor(select(products.yw, products.xz, odd), 1u);
    let upper = (own & 2u) != 0u;
    var sum = select(pair.x, pair.y, upper) + subgroupShuffleXor(select(pair.y, pair.x, upper), 2u);
    for (var step = 4u; step < TEAM; step <<= 1u) {
        sum += subgroupShuffleXor(sum, step);
    }
    return sum;
}

// The number of each of four neighbouring lanes, in their order.
fn of_four(number: f32, own: u32) -> vec4<f32> {
    let other = subgroupShuffleXor(number, 1u);
    let pair = select(vec2<f32>(number, other), vec2<f32>(other, number), (own & 1u) != 0u);
    let far = subgroupShuffleXor(pair, 2u);
    return select(vec4<f32>(pair, far), vec4<f32>(far, pair), (own & 2u) != 0u);
}

struct Four { a: Eight, b: Eight, c: Eight, d: Eight }

// The score of this lane's key, which stands so far before the query.
fn score_by(head: Head, keys: Four, which: u32, far: u32, own: u32) -> f32 {
    let low = vec2<f32>(dot_of(head.query, keys.a), dot_of(head.query, keys.b));
    let products = vec4<f32>(low, dot_of(head.query, keys.c), dot_of(head.query, keys.d));
    // Lanes beyond the last piece of a head add nothing.
    let counted = select(vec4<f32>(), products, own < HEAD_DIM / 8u);
    var score = SCALE * team_sum(counted, own);
    if SOFTCAP != 0.0 {
        score = SOFTCAP * tanh_accurate(score / SOFTCAP);
    }
    if HAS_ALIBI != 0u {
        score = fma(-bitcast<f32>(extra[which]), f32(far), score);
    }
    return score;
}

// A head that has seen four more keys and values. This lane has the score of one of them, if that is `seen`.
fn seen_by(head: Head, values: Four, score: f32, seen: bool, own: u32) -> Head {
    let near = max(score, subgroupShuffleXor(score, 1u));
    let peak = max(head.top, max(near, subgroupShuffleXor(near, 2u)));
    let shrink = exp_accurate(head.top - peak);
    let chance = select(0.0, exp_accurate(score - peak), seen);
    let chances = of_four(chance, own);
    var low = fma(vec4<f32>(chances.x), values.a.low, head.sums.low * shrink);
    var high = fma(vec4<f32>(chances.x), values.a.high, head.sums.high * shrink);
    low = fma(vec4<f32>(chances.y), values.b.low, low);
    high = fma(vec4<f32>(chances.y), values.b.high, high);
    low = fma(vec4<f32>(chances.z), values.c.low, low);
    high = fma(vec4<f32>(chances.z), values.c.high, high);
    low = fma(vec4<f32>(chances.w), values.d.low, low);
    high = fma(vec4<f32>(chances.w), values.d.high, high);
    return Head(head.query, Eight(low, high), peak, fma(head.total, shrink, chance));
}

// A head of a row that has seen nothing.
fn head_of(row: u32, head: u32, piece: u32) -> Head {
    let query = numbers(query_words((row * HEADS + head) * (HEAD_DIM / 8u) + piece));
    return Head(query, Eight(), LOWEST, 0.0);
}

// Brings a team's largest score and sum of exponentials of head h of the block to workgroup memory.
fn put(head: Head, h: u32, team: u32, own: u32) {
    let pair = head.total + subgroupShuffleXor(head.total, 1u);
    let total = pair + subgroupShuffleXor(pair, 2u);
    if own == 0u {
        tops[h * (LANES / TEAM) + team] = head.top;
        totals[h * (LANES / TEAM) + team] = total;
    }
}

// Adds up the sums of all teams for head h of the block, `which` of the row, and stores the result; zeros if no key is seen.
fn give(head: Head, h: u32, which: u32, row: u32, none: bool, lane: u32) {
    let teams = LANES / TEAM;
    let pieces = VALUE_DIM / 8u;
    let own = lane % TEAM;
    var peak = LOWEST;
    if HAS_SINKS != 0u {
        peak = weight_value(extra[weight_word(which)], which);
    }
    let sink = peak;
    for (var t = 0u; t < teams; t++) {
        peak = max(peak, tops[h * teams + t]);
    }
    if own < pieces {
        let weight = exp_accurate(head.top - peak);
        let at = (lane / TEAM * pieces + own) * 2u;
        pool[at] = head.sums.low * weight;
        pool[at + 1u] = head.sums.high * weight;
        if own == 0u {
            totals[h * teams + lane / TEAM] *= weight;
        }
    }
    workgroupBarrier();
    if lane < VALUE_DIM / 4u {
        var total = 0.0;
        if HAS_SINKS != 0u {
            total = exp_accurate(sink - peak);
        }
        var sum = vec4<f32>();
        for (var t = 0u; t < teams; t++) {
            sum += pool[t * (VALUE_DIM / 4u) + lane];
            total += totals[h * teams + t];
        }
        let result = select(sum / select(total, 1.0, none), vec4<f32>(), none);
        let at = (row * HEADS + which) * VALUE_DIM + 4u * lane;
        y[at] = to_act(result.x);
        y[at + 1u] = to_act(result.y);
        y[at + 2u] = to_act(result.z);
        y[at + 3u] = to_act(result.w);
    }
    workgroupBarrier();
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) within: u32,
    @builtin(subgroup_size) size: u32,
) {
    let row = group.y;
    if row >= row_count(symbols) {
        return;
    }
    let position = positions[row];
    let text = texts[row];
    // The keys that are seen: from `first` up to, not including, `end`; none by a row of no text.
    let first = first_seen(position);
    let end = select(first, position + 1u, text < TEXTS);
    let last = max(end, 1u) - 1u;
    let table = min(text, TEXTS - 1u) * BLOCKS;
    let lane = subgroup * size + within;
    let team = lane / TEAM;
    let own = lane % TEAM;
    let piece = min(own, HEAD_DIM / 8u - 1u);
    let kv_head = group.x * BLOCK / (HEADS / KV_HEADS);
    let key_at = kv_head * (HEAD_DIM / 8u) + piece;
    let value_at = kv_head * (VALUE_DIM / 8u) + min(own, VALUE_DIM / 8u - 1u);
    let apart = LANES / TEAM;
    // Keys of a team lie so far apart that all teams have some, however few there are.
    var keys = vec4<u32>(first + team) + vec4<u32>(0u, apart, 2u * apart, 3u * apart);
    var places = rows_of(table, keys, last);
