// For each part of a row of WIDTH elements its greatest element, and the sum of exp(scale * (x - greatest)). Workgroup (x, y)
// treats part x of row y. Both are 0 where an element is NaN, where the greatest is infinite, and where the scale is not above 0
// and finite.
override WIDTH: u32;
override PART: u32; // elements of a part
override COUNT: u32; // parts of a row

@group(0) @binding(0) var<storage, read> numbers: array<u32>; // the bits of f32
@group(0) @binding(1) var<storage, read> scales: array<u32>; // the bits of f32
@group(0) @binding(2) var<storage, read_write> maxima: array<f32>;
@group(0) @binding(3) var<storage, read_write> sums: array<f32>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

const LANES = 256u;
const LOWEST = -0x1.fffffep+127f;
const INFINITY = 0x7f800000u;

var<workgroup> found: array<f32, 256>;
var<workgroup> unordered: atomic<u32>;
var<workgroup> finite: atomic<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y;
    if row >= row_count(symbols) {
        return;
    }
    let place = row * COUNT + group.x;
    let scale_bits = scales[row];
    // The whole workgroup ends here: nothing of the row is read.
    if scale_bits == 0u || scale_bits >= INFINITY {
        if lane == 0u {
            maxima[place] = 0.0;
            sums[place] = 0.0;
        }
        return;
    }
    let begin = row * WIDTH + group.x * PART;
    let end = begin + min(PART, WIDTH - group.x * PART);
    if lane == 0u {
        atomicStore(&unordered, 0u);
        atomicStore(&finite, 0u);
    }
    workgroupBarrier();
    var own = LOWEST;
    var bad = false;
    var some = false;
    for (var i = begin + lane; i < end; i += LANES) {
        let bits = numbers[i];
        if bits == INFINITY || (bits & 0x7fffffffu) > INFINITY {
            bad = true;
        } else if bits != 0xff800000u {
            some = true;
            own = max(own, bitcast<f32>(bits));
        }
    }
    if bad {
        atomicStore(&unordered, 1u);
    }
    if some {
        atomicStore(&finite, 1u);
    }
    found[lane] = own;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step >>= 1u) {
        if lane < step {
            found[lane] = max(found[lane], found[lane + step]);
        }
        workgroupBarrier();
    }
    let most = found[0];
    let good = atomicLoad(&unordered) == 0u && atomicLoad(&finite) == 1u;
    workgroupBarrier();
    let scale = bitcast<f32>(scale_bits);
    var sum = 0.0;
    for (var i = begin + lane; i < end; i += LANES) {
        let bits = numbers[i];
        if good && bits != 0xff800000u {
            sum += exp_accurate(scale * (bitcast<f32>(bits) - most));
        }
    }
    found[lane] = sum;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step >>= 1u) {
        if lane < step {
            found[lane] += found[lane + step];
        }
        workgroupBarrier();
    }
    if lane == 0u {
        maxima[place] = select(0.0, most, good);
        sums[place] = select(0.0, found[0], good);
    }
}
