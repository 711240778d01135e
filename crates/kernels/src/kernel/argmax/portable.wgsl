// The place of the greatest of WIDTH numbers, the first of equal ones. It becomes the next token, and is noted at the row
// that it was found in. Where a number is NaN or +infinity, or none is above -infinity, ~0 is noted.
override WIDTH: u32;

@group(0) @binding(0) var<storage, read> numbers: array<f32>;
@group(0) @binding(1) var<storage, read_write> token: array<u32>;
@group(0) @binding(2) var<storage, read_write> found: array<u32>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

const LANES = 256u;
const EACH = 16u; // numbers of a lane at a time
const STEPS = vec4<u32>(0u, 256u, 512u, 768u);

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

fn four(places: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(numbers[places.x], numbers[places.y], numbers[places.z], numbers[places.w]);
}

// The higher of a number in its order at a place and another; the first if they are equal.
fn higher(top: vec2<u32>, number: f32, place_of: u32) -> vec2<u32> {
    let value = order(number);
    return select(top, vec2<u32>(value, place_of), value > top.x);
}

fn higher_of_four(top: vec2<u32>, found: vec4<f32>, places: vec4<u32>) -> vec2<u32> {
    let low = higher(higher(top, found.x, places.x), found.y, places.y);
    return higher(higher(low, found.z, places.z), found.w, places.w);
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    var highest = 0u;
    var at = 0u;
    for (var first = lane; first < WIDTH; first += EACH * LANES) {
        // All of them are under way before one is looked at. Beyond the end the last number stands in, whose place is its own.
        let places0 = min(vec4<u32>(first) + STEPS, vec4<u32>(WIDTH - 1u));
        let places1 = min(vec4<u32>(first + 4u * LANES) + STEPS, vec4<u32>(WIDTH - 1u));
        let places2 = min(vec4<u32>(first + 8u * LANES) + STEPS, vec4<u32>(WIDTH - 1u));
        let places3 = min(vec4<u32>(first + 12u * LANES) + STEPS, vec4<u32>(WIDTH - 1u));
        let found0 = four(places0);
        let found1 = four(places1);
        let found2 = four(places2);
        let found3 = four(places3);
        var top = vec2<u32>(highest, at);
        top = higher_of_four(top, found0, places0);
        top = higher_of_four(top, found1, places1);
        top = higher_of_four(top, found2, places2);
        top = higher_of_four(top, found3, places3);
        highest = top.x;
        at = top.y;
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
