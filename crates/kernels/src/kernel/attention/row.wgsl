// Softmax attention of one row whose queries and keys are still to be rotated, and whose keys and values are still to be
// appended. Heads are rotated as a whole, the pairs half a head apart. Workgroup x has part x / (HEADS / BLOCK) of the keys
// for block x % (HEADS / BLOCK) of heads that read the same keys. A team of lanes takes a key at a time, each lane 16 bytes
// of it, so that scores meet within subgroups and nothing waits for the workgroup before the end. What is done
// for each head stands behind this text.
override HEADS: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32; // elements of a head; halves consist of whole pieces
override SCALE: f32;
override WINDOW: u32 = 0u; // 0: no window
override CHUNK: u32 = 0xffffffffu; // one chunk of all positions
override SOFTCAP: f32 = 0.0; // 0: no cap
override BLOCK: u32; // heads of a block, at most 8
override PIECE: u32; // elements of 16 bytes: 4 of f32, 8 of f16
override TEAM: u32; // lanes of a team: a power of two, at most a subgroup

@group(0) @binding(0) var<storage, read> q: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> new_k: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> new_v: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> angles: array<vec4<f32>>; // cosines, then sines
@group(0) @binding(4) var<storage, read_write> k: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> v: array<vec4<u32>>;
const LANES = 256u;
const PARTS = 32u;
const LEAST = 128u; // keys of a part, if there are as many
const LOWEST = -1e30;

var<workgroup> pool: array<vec4<f32>, POOL>; // sums of subgroups
var<workgroup> tops: array<f32, 256>; // the largest scores of subgroups, eight each
var<workgroup> totals: array<f32, 256>;
var<workgroup> peaks: array<f32, 8>; // the largest scores of heads

// Numbers of 16 bytes; only the first four of f32.
struct Numbers { low: vec4<f32>, high: vec4<f32> }

// What a lane has of a head: 16 bytes of the query and of the sums; the same in the whole team, the largest score and the sum
// of the exponentials.
struct Head { query: Numbers, sums: Numbers, top: f32, total: f32 }

fn numbers(words: vec4<u32>) -> Numbers {
    if PIECE == 4u {
        return Numbers(bitcast<vec4<f32>>(words), vec4<f32>());
    }
    let low = vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
    return Numbers(low, vec4<f32>(unpack2x16float(words.z), unpack2x16float(words.w)));
}

fn words_of(n: Numbers) -> vec4<u32> {
    if PIECE == 4u {
        return bitcast<vec4<u32>>(n.low);
    }
    let low = vec2<u32>(pack2x16float(n.low.xy), pack2x16float(n.low.zw));
    return vec4<u32>(low, pack2x16float(n.high.xy), pack2x16float(n.high.zw));
}

// The first key that a query at `position` sees.
fn first_seen(position: u32) -> u32 {
    var first = 0u;
    if WINDOW != 0u && position >= WINDOW {
        first = position + 1u - WINDOW;
    }
    return max(first, position / CHUNK * CHUNK);
}

// Four numbers of a head, rotated by the angles at `at`, as they are stored; a is of the first half, b of the second.
fn turned(a: vec4<f32>, b: vec4<f32>, at: u32, second: bool) -> vec4<f32> {
    let cosine = angles[at];
    let sine = angles[HEAD_DIM / 8u + at];
    let r = select(a * cosine - b * sine, b * cosine + a * sine, second);
    return vec4<f32>(f32(to_act(r.x)), f32(to_act(r.y)), f32(to_act(r.z)), f32(to_act(r.w)));
}

// Piece i of a head of which a and b are the pieces of its halves.
fn rotated(a: Numbers, b: Numbers, i: u32) -> Numbers {
    let half = HEAD_DIM / PIECE / 2u;
    let at = i % half * (PIECE / 4u);
    var result = Numbers();
    result.low = turned(a.low, b.low, at, i >= half);
    if PIECE == 8u {
        result.high = turned(a.high, b.high, at + 1u, i >= half);
    }
    return result;
}

fn dot_of(a: Numbers, b: Numbers) -> f32 {
    if PIECE == 4u {
        return dot(a.low, b.low);
    }
    return dot(a.low, b.low) + dot(a.high, b.high);
}

// The score as it is softened: the scaled sum of the products.
fn score_of(sum: f32) -> f32 {
    let score = SCALE * sum;
    if SOFTCAP != 0.0 {
        return SOFTCAP * tanh_accurate(score / SOFTCAP);
    }
    return score;
}

fn scores_of(sums: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(score_of(sums.x), score_of(sums.y), score_of(sums.z), score_of(sums.w));
}

fn exp_of(v: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(exp_accurate(v.x), exp_accurate(v.y), exp_accurate(v.z), exp_accurate(v.w));
}

// The sum over a team.
fn team_sum(own: vec4<f32>) -> vec4<f32> {
    var sum = own;
    for (var step = 1u; step < TEAM; step <<= 1u) {
        sum += subgroupShuffleXor(sum, step);
    }
    return sum;
}

fn scaled(n: Numbers, by: f32) -> Numbers {
    return Numbers(n.low * by, n.high * by);
}

fn add_scaled(to: Numbers, n: Numbers, by: f32) -> Numbers {
    return Numbers(fma(vec4<f32>(by), n.low, to.low), fma(vec4<f32>(by), n.high, to.high));
}

// Brings the heads of a subgroup's teams together.
fn joined(head: Head, size: u32) -> Head {
    var all = head;
    for (var step = TEAM; step < size; step <<= 1u) {
        let top = subgroupShuffleXor(all.top, step);
        let total = subgroupShuffleXor(all.total, step);
        let other = Numbers(subgroupShuffleXor(all.sums.low, step), subgroupShuffleXor(all.sums.high, step));
        let peak = max(all.top, top);
        let own = exp_accurate(all.top - peak);
        let weight = exp_accurate(top - peak);
        all.sums = add_scaled(scaled(all.sums, own), other, weight);
        all.total = fma(total, weight, all.total * own);
        all.top = peak;
    }
    return all;
}

// What all subgroups have of a head: 16 bytes of sums, its largest score, and the sum of the exponentials.
struct All { sums: vec4<f32>, peak: f32, total: f32 }

// Turns the largest scores of subgroups into what their sums weigh, and the sums of the exponentials into the block's.
fn weigh(lane: u32, subgroups: u32) {
    let h = min(lane % 8u, BLOCK - 1u);
    var peak = LOWEST;
    for (var s = 0u; s < subgroups; s++) {
        peak = max(peak, tops[8u * s + h]);
    }
    let weighs = lane < 8u * subgroups && lane % 8u < BLOCK;
    var weight = 0.0;
    var total = 0.0;
    if weighs {
        weight = exp_accurate(tops[lane] - peak);
        total = weight * totals[lane];
    }
    workgroupBarrier();
    if weighs {
        tops[lane] = weight;
        totals[lane] = total;
    }
    if lane < BLOCK {
        peaks[lane] = peak;
    }
    workgroupBarrier();
}

// Elements 4i to 4i + 3 of the block's heads over all subgroups, which are weighed.
fn all_of(i: u32, subgroups: u32) -> All {
    let h = i / (HEAD_DIM / 4u);
    var all = All(vec4<f32>(), peaks[h], 0.0);
    for (var s = 0u; s < subgroups; s++) {
        all.sums = fma(vec4<f32>(tops[8u * s + h]), pool[s * (BLOCK * HEAD_DIM / 4u) + i], all.sums);
        all.total += totals[8u * s + h];
    }
    return all;
}

// Where a lane's work lies: the first of four keys, how far they are apart, and its place in the cache's rows.
struct Place { key: u32, apart: u32, at: u32 }

// 16 bytes of each of four keys and their values, of those that are cached.
struct Words { key: array<vec4<u32>, 4>, value: array<vec4<u32>, 4> }

fn words_at(place: Place, end: u32) -> Words {
    let width = KV_HEADS * (HEAD_DIM / PIECE);
    let step = place.apart * width;
    let at = place.key * width + place.at;
    var words = Words();
    if place.key < end {
        words.key[0] = k[at];
        words.value[0] = v[at];
    }
    if place.key + place.apart < end {
        words.key[1] = k[at + step];
        words.value[1] = v[at + step];
    }
    if place.key + 2u * place.apart < end {
        words.key[2] = k[at + 2u * step];
        words.value[2] = v[at + 2u * step];
    }
    if place.key + 3u * place.apart < end {
        words.key[3] = k[at + 3u * step];
        words.value[3] = v[at + 3u * step];
    }
    return words;
}

// 16 bytes of four keys, or of their values.
struct Four { a: Numbers, b: Numbers, c: Numbers, d: Numbers }

// What is cached, or the new one where `is_new` says so.
fn four_of(words: array<vec4<u32>, 4>, fresh: vec4<u32>, is_new: vec4<bool>) -> Four {
    let a = numbers(select(words[0], fresh, is_new.x));
    let b = numbers(select(words[1], fresh, is_new.y));
    let c = numbers(select(words[2], fresh, is_new.z));
    return Four(a, b, c, numbers(select(words[3], fresh, is_new.w)));
}

// The scores of four keys, of which some are seen.
fn scores_by(head: Head, keys: Four, seen: vec4<bool>) -> vec4<f32> {
    let low = vec2<f32>(dot_of(head.query, keys.a), dot_of(head.query, keys.b));
    let products = vec4<f32>(low, dot_of(head.query, keys.c), dot_of(head.query, keys.d));
    return select(vec4<f32>(LOWEST), scores_of(team_sum(products)), seen);
}

// A head that has seen four more values.
fn seen_by(head: Head, values: Four, scores: vec4<f32>, seen: vec4<bool>) -> Head {
    let high = max(scores.xy, scores.zw);
    let peak = max(head.top, max(high.x, high.y));
    let shrink = exp_accurate(head.top - peak);
    let chance = select(vec4<f32>(), exp_of(scores - vec4<f32>(peak)), seen);
    var sums = add_scaled(scaled(head.sums, shrink), values.a, chance.x);
    sums = add_scaled(add_scaled(sums, values.b, chance.y), values.c, chance.z);
    sums = add_scaled(sums, values.d, chance.w);
    let total = fma(head.total, shrink, (chance.x + chance.y) + (chance.z + chance.w));
    return Head(head.query, sums, peak, total);
}

// A head that has seen nothing: piece i of its query, of which `first` is the piece of the first half.
fn head_of(head: u32, first: u32, i: u32, counts: bool) -> Head {
    let count = HEAD_DIM / PIECE;
    let at = head * count + first;
    let query = rotated(numbers(q[at]), numbers(q[at + count / 2u]), i);
    // Lanes beyond the last piece of a head add nothing.
    return Head(scaled(query, select(0.0, 1.0, counts)), Numbers(), LOWEST, 0.0);
}

// Brings what a subgroup has of head h to workgroup memory.
fn put(head: Head, h: u32, subgroup: u32, within: u32, size: u32) {
    let all = joined(head, size);
    if within < HEAD_DIM / PIECE {
        let at = (subgroup * BLOCK + h) * (HEAD_DIM / 4u) + within * (PIECE / 4u);
        pool[at] = all.sums.low;
        if PIECE == 8u {
            pool[at + 1u] = all.sums.high;
        }
    }
    if within == 0u {
        tops[8u * subgroup + h] = all.top;
        totals[8u * subgroup + h] = all.total;
    }
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) within: u32,
    @builtin(subgroup_size) size: u32,
) {
    // The first parts, which have keys most often, begin first.
    let block = group.x % (HEADS / BLOCK);
    let part = group.x / (HEADS / BLOCK);
    let p = symbols.p;
    let least = first_seen(p);
    let step = max(LEAST, (p + PARTS - least) / PARTS);
    let first = least + part * step;
    let end = min(first + step, p + 1u);
    if first >= end {
        nothing(block, part, lane);
        return;
    }
    let kv_head = block * BLOCK / (HEADS / KV_HEADS);
    let count = HEAD_DIM / PIECE;
    let half = count / 2u;
    let team = (subgroup * size + within) / TEAM;
    let own = within % TEAM;
    // Lanes beyond the last piece of a head repeat the last one.
    let i = min(own, count - 1u);
    let cached = min(end, p);
    let apart = LANES / TEAM;
    var place = Place(first + team, apart, kv_head * count + i);
    // The cache is far away: it is asked for before anything else.
    var words = words_at(place, cached);
    var fresh_key = vec4<u32>();
    var fresh_value = vec4<u32>();
    if p < end {
        let at = kv_head * count + i % half;
        fresh_key = words_of(rotated(numbers(new_k[at]), numbers(new_k[at + half]), i));
        fresh_value = new_v[kv_head * count + i];
    }
