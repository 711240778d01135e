// The place of the greatest of WIDTH numbers, the first of equal ones. It becomes the next token, and is noted at the row
// that it was found in. Where a number is NaN or +infinity, or none is above -infinity, ~0 is noted.
override WIDTH: u32;

@group(0) @binding(0) var<storage, read> numbers: array<f32>;
@group(0) @binding(1) var<storage, read_write> token: array<u32>;
@group(0) @binding(2) var<storage, read_write> found: array<u32>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

const LANES = 256u;

var<workgroup> best: array<u32, 256>;
var<workgroup> place: array<u32, 256>;

// Orders as the number does, with 0 for -infinity and ~0 for what no logit may be.
fn order(number: f32) -> u32 {
    let bits = bitcast<u32>(number);
    if bits == 0xff800000u {
        return 0u;
    }
    let ordered = select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
    return select(ordered, 0xffffffffu, bits == 0x7f800000u || (bits & 0x7fffffffu) > 0x7f800000u);
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    var highest = 0u;
    var at = 0u;
    for (var i = lane; i < WIDTH; i += LANES) {
        let value = order(numbers[i]);
        if value > highest {
            highest = value;
            at = i;
        }
    }
    best[lane] = highest;
    place[lane] = at;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step >>= 1u) {
        if lane < step {
            let other = best[lane + step];
            if other > best[lane] || (other == best[lane] && place[lane + step] < place[lane]) {
                best[lane] = other;
                place[lane] = place[lane + step];
            }
        }
        workgroupBarrier();
    }
    if lane == 0u {
        let good = best[0] != 0u && best[0] != 0xffffffffu;
        token[0] = place[0];
        found[symbols.p] = select(0xffffffffu, place[0], good);
    }
}
