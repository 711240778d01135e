// The best SLOTS of EXPERTS experts and their weights, one workgroup per row.
//
// Each round finds the best expert behind the one found before, in the order of falling keys and, among equal ones, of
// rising indices: nothing needs to be marked as taken. Lane s keeps what round s found.
override EXPERTS: u32;
override SLOTS: u32; // at most 64
override SCORES: u32; // 0: softmax, 1: sigmoid, 2: softmax of the chosen ones
override BY_LOGITS: u32; // whether experts are compared by their logits
override HAS_BIAS: u32 = 0u;
override NORMALIZE: u32 = 0u;
override SCALE: f32 = 1.0;
override GROUPS: u32 = 1u; // at most 64; divides EXPERTS
override SELECTED: u32 = 1u;
override TWO: u32 = 0u; // whether a group is worth the sum of its two best experts, not the best one

@group(0) @binding(0) var<storage, read> logits: array<act>;
@group(0) @binding(1) var<storage, read> bias: array<u32>; // not read unless HAS_BIAS
@group(0) @binding(2) var<storage, read_write> experts: array<u32>;
@group(0) @binding(3) var<storage, read_write> weights: array<act>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

const LANES = 64u;

// The lowest finite number: devices need not know infinities.
const LOWEST = -3.4028234663852886e38;

var<workgroup> partial: array<f32, LANES>;
var<workgroup> places: array<u32, LANES>;
// Whether the experts of a group can be chosen.
var<workgroup> open: array<u32, LANES>;

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

// Whether (a, i) stands before (b, j).
fn before(a: f32, i: u32, b: f32, j: u32) -> bool {
    return a > b || (a == b && i < j);
}

struct Shift { top: f32, total: f32 }

// The score of the expert whose logit is `l`; for a softmax `shift` is the largest logit and the sum of exponentials.
fn score_of(l: f32, shift: Shift) -> f32 {
    if SCORES == 0u {
        return exp_accurate(l - shift.top) / shift.total;
    }
    if SCORES == 1u {
        let e = exp_accurate(-abs(l));
        return select(1.0, e, l < 0.0) / (1.0 + e);
    }
    return l;
}

// What expert `e` of the row that begins at `row` is compared by.
fn key_of(row: u32, e: u32, shift: Shift) -> f32 {
    var key = f32(logits[row + e]);
    if BY_LOGITS == 0u {
        key = score_of(key, shift);
    }
    if HAS_BIAS == 1u {
        key += weight_value(bias[weight_word(e)], e);
    }
    let is_nan = (bitcast<u32>(key) & 0x7fffffffu) > 0x7f800000u;
    return select(max(key, LOWEST), LOWEST, is_nan);
}

// What group `g` is worth.
fn group_key(row: u32, g: u32, shift: Shift) -> f32 {
    let size = EXPERTS / GROUPS;
    var best = LOWEST;
    var second = LOWEST;
    for (var e = g * size; e < (g + 1u) * size; e++) {
        let key = key_of(row, e, shift);
        if key > best {
            second = best;
            best = key;
        } else if key > second {
            second = key;
        }
    }
    if TWO == 1u {
        return best + second;
    }
    return best;
}

// Opens the SELECTED best groups.
fn open_groups(row: u32, lane: u32, shift: Shift) {
    if GROUPS == 1u {
        open[lane] = 1u;
        workgroupBarrier();
        return;
    }
    if lane < GROUPS {
        partial[lane] = group_key(row, lane, shift);
    }
    workgroupBarrier();
    if lane < GROUPS {
        var better = 0u;
        for (var g = 0u; g < GROUPS; g++) {
            better += u32(before(partial[g], g, partial[lane], lane));
        }
        open[lane] = u32(better < SELECTED);
    }
    workgroupBarrier();
}

// The best expert of an open group behind (key, place); the first of all if `first`.
fn next(row: u32, lane: u32, shift: Shift, first: bool, key: f32, place: u32) -> vec2<u32> {
    let size = EXPERTS / GROUPS;
    var best = LOWEST;
    var at = 0xffffffffu;
    for (var e = lane; e < EXPERTS; e += LANES) {
        let own = key_of(row, e, shift);
        let behind = first || before(key, place, own, e);
        if behind && open[e / size] == 1u && before(own, e, best, at) {
            best = own;
            at = e;
        }
    }
    partial[lane] = best;
    places[lane] = at;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step >>= 1u) {
        if lane < step && before(partial[lane + step], places[lane + step], partial[lane], places[lane]) {
            partial[lane] = partial[lane + step];
            places[lane] = places[lane + step];
        }
        workgroupBarrier();
    }
    let found = vec2<u32>(bitcast<u32>(partial[0]), places[0]);
    workgroupBarrier();
    return found;
}

// The largest logit of the row and the sum of the exponentials of the others' distances from it.
fn shift_of(row: u32, lane: u32) -> Shift {
    if SCORES != 0u {
        return Shift(0.0, 1.0);
    }
    var top = LOWEST;
    for (var e = lane; e < EXPERTS; e += LANES) {
        top = max(top, f32(logits[row + e]));
    }
    top = largest_of(lane, top);
    var total = 0.0;
    for (var e = lane; e < EXPERTS; e += LANES) {
        total += exp_accurate(f32(logits[row + e]) - top);
    }
    return Shift(top, sum_of(lane, total));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if group.x >= row_count(symbols) {
        return;
    }
    let row = group.x * EXPERTS;
    let shift = shift_of(row, lane);
    open_groups(row, lane, shift);
    var last = vec2<u32>();
    var own = 0u;
    for (var slot = 0u; slot < SLOTS; slot++) {
        last = next(row, lane, shift, slot == 0u, bitcast<f32>(last.x), last.y);
        if lane == slot {
            own = last.y;
        }
    }
    let taken = lane < SLOTS;
    var weight = score_of(f32(logits[row + min(own, EXPERTS - 1u)]), shift);
    if SCORES == 2u {
        let top = largest_of(lane, select(LOWEST, weight, taken));
        weight = select(0.0, exp_accurate(weight - top), taken);
        weight /= sum_of(lane, weight);
    }
    if NORMALIZE == 1u {
        weight /= sum_of(lane, select(0.0, weight, taken)) + 1e-20;
    }
    if taken {
        experts[group.x * SLOTS + lane] = own;
        weights[group.x * SLOTS + lane] = to_act(weight * SCALE);
    }
}
