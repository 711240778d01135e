// The place of the greatest of numbers of which COUNT shares have been looked at, the first of equal ones. It becomes the
// next token, and is noted at the row that it was found in. Where a number is NaN or +infinity, or none is above -infinity,
// ~0 is noted.
override COUNT: u32;

@group(0) @binding(0) var<storage, read> tops: array<vec2<u32>>; // the greatest in an order of integers, and its place
@group(0) @binding(1) var<storage, read_write> token: array<u32>;
@group(0) @binding(2) var<storage, read_write> found: array<u32>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

const LANES = 256u;

var<workgroup> best: array<vec2<u32>, 256>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    var top = vec2<u32>(0u, 0u);
    for (var i = lane; i < COUNT; i += LANES) {
        let other = tops[i];
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
        token[0] = best[0].y;
        found[symbols.p] = select(0xffffffffu, best[0].y, good);
    }
}
