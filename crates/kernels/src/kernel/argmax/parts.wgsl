// The greatest of each SHARE of the WIDTH numbers of a row in an order of integers, and its index; the first of equal ones.
override WIDTH: u32;
override SHARE: u32; // of a workgroup
override COUNT: u32; // workgroups of a row

@group(0) @binding(0) var<storage, read> numbers: array<u32>; // the bits of f32
@group(0) @binding(1) var<storage, read_write> tops: array<vec2<u32>>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

const LANES = 256u;

var<workgroup> best: array<vec2<u32>, 256>;

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

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if group.y >= row_count(symbols) {
        return;
    }
    let row = group.y * WIDTH;
    let first = group.x * SHARE;
    let end = min(first + SHARE, WIDTH);
    var top = vec2<u32>(0u, first);
    for (var i = first + lane; i < end; i += LANES) {
        let value = order(numbers[row + i]);
        top = select(top, vec2<u32>(value, i), value > top.x);
    }
    best[lane] = top;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step >>= 1u) {
        if lane < step {
            let other = best[lane + step];
            let own = best[lane];
            if other.x > own.x || (other.x == own.x && other.y < own.y) {
                best[lane] = other;
            }
        }
        workgroupBarrier();
    }
    if lane == 0u {
        tops[group.y * COUNT + group.x] = best[0];
    }
}
