// The K greatest elements of each row in falling order, of equal ones the first first, and their columns. One workgroup for each
// part of a row of WIDTH elements chooses K of them; then one for each row chooses from these. Where an element is NaN or
// +infinity, or none is above -infinity, the columns are ~0 and the values 0.
//
// Each lane finds the greatest of its elements. The K-th of these is no greater than the K-th of all, and elements that are no
// smaller belong to K lanes: they are few. How many of them stand before one is its place.
override WIDTH: u32;
override K: u32; // at most 256
override PART: u32; // elements of a part
override COUNT: u32; // parts of a row
override JOINS: u32; // whether this is the choice from what the parts chose

@group(0) @binding(0) var<storage, read> numbers: array<u32>; // the bits of f32
@group(0) @binding(1) var<storage, read_write> chosen: array<vec2<u32>>; // by the parts: an order and a column
@group(0) @binding(2) var<storage, read_write> values: array<u32>; // the bits of f32
@group(0) @binding(3) var<storage, read_write> columns: array<u32>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

const LANES = 256u;
// Elements that may stand before the bound, which the planner looks after.
const ROOM = 1024u;
// What stands behind every element.
const NONE = vec2<u32>(0u, 0xffffffffu);

var<workgroup> best: array<vec2<u32>, 256>;
var<workgroup> bound: vec2<u32>;
var<workgroup> kept: array<vec2<u32>, ROOM>;
var<workgroup> total: atomic<u32>;

// Orders as the number does, with 0 for -infinity and ~0 for NaN and +infinity. Both zeros are equal.
fn order(bits: u32) -> u32 {
    if bits == 0xff800000u {
        return 0u;
    }
    if bits == 0x80000000u {
        return 0x80000000u;
    }
    let ordered = select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
    return select(ordered, 0xffffffffu, bits == 0x7f800000u || (bits & 0x7fffffffu) > 0x7f800000u);
}

fn is_before(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x > b.x || (a.x == b.x && a.y < b.y);
}

fn element(row: u32, i: u32) -> vec2<u32> {
    if JOINS == 1u {
        return chosen[row * COUNT * K + i];
    }
    return vec2<u32>(order(numbers[row * WIDTH + i]), i);
}

// Keeps what was found at a place of the part, or of the row.
fn keep(row: u32, part: u32, place: u32, found: vec2<u32>, first: vec2<u32>) {
    if JOINS == 0u {
        chosen[(row * COUNT + part) * K + place] = found;
        return;
    }
    let good = first.x != 0u && first.x != 0xffffffffu;
    columns[row * K + place] = select(0xffffffffu, found.y, good);
    var value = 0u;
    if good {
        value = numbers[row * WIDTH + found.y];
    }
    values[row * K + place] = value;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y;
    if row >= row_count(symbols) {
        return;
    }
    let begin = group.x * PART;
    let end = select(min(begin + PART, WIDTH), COUNT * K, JOINS == 1u);
    var own = NONE;
    for (var i = begin + lane; i < end; i += LANES) {
        let found = element(row, i);
        if is_before(found, own) {
            own = found;
        }
    }
    best[lane] = own;
    if lane == 0u {
        bound = NONE;
        atomicStore(&total, 0u);
    }
    workgroupBarrier();
    var place = 0u;
    var first = NONE;
    for (var j = 0u; j < LANES; j++) {
        let other = best[j];
        place += u32(is_before(other, own));
        if is_before(other, first) {
            first = other;
        }
    }
    // Lanes without an element all have the same place.
    if place == K - 1u && own.y != NONE.y {
        bound = own;
    }
    workgroupBarrier();
    let last = bound;
    for (var i = begin + lane; i < end; i += LANES) {
        let found = element(row, i);
        if found.y != NONE.y && !is_before(last, found) {
            kept[min(atomicAdd(&total, 1u), ROOM - 1u)] = found;
        }
    }
    workgroupBarrier();
    let count = min(atomicLoad(&total), ROOM);
    for (var i = lane; i < count; i += LANES) {
        let found = kept[i];
        var before = 0u;
        for (var j = 0u; j < count; j++) {
            before += u32(is_before(kept[j], found));
        }
        if before < K {
            keep(row, group.x, before, found, first);
        }
    }
    // A part may have fewer elements than places.
    for (var i = count + lane; i < K; i += LANES) {
        keep(row, group.x, i, NONE, first);
    }
}
