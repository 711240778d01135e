// The index of the greatest number of a row of which COUNT shares have been looked at, the first of equal ones, behind the
// indices that were found before. Where a number is NaN or +infinity, or none is above -infinity, ~0 stands there, and 0 in
// `next`. New rows before those that were looked at have ~0.
override COUNT: u32;
// Indices that were found before: BEFORE_N * n + BEFORE_P * p + BEFORE_C.
override BEFORE_N: u32 = 0u;
override BEFORE_P: u32 = 0u;
override BEFORE_C: u32 = 0u;

@group(0) @binding(0) var<storage, read> tops: array<vec2<u32>>; // the greatest in an order of integers, and its index
@group(0) @binding(1) var<storage, read_write> found: array<u32>;
@group(0) @binding(2) var<storage, read_write> next: array<u32>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

const LANES = 256u;

var<workgroup> best: array<vec2<u32>, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let at = BEFORE_N * symbols.n + BEFORE_P * symbols.p + BEFORE_C + group.x;
    let skipped = symbols.n - row_count(symbols);
    if group.x < skipped {
        if lane == 0u {
            found[at] = 0xffffffffu;
        }
        return;
    }
    let row = group.x - skipped;
    var top = vec2<u32>(0u, 0u);
    for (var i = lane; i < COUNT; i += LANES) {
        let other = tops[row * COUNT + i];
        top = select(top, other, other.x > top.x || (i == lane));
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
        let good = best[0].x != 0u && best[0].x != 0xffffffffu;
        next[row] = select(0u, best[0].y, good);
        found[at] = select(0xffffffffu, best[0].y, good);
    }
}
