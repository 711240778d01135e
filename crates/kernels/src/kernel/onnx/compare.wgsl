// y = whether two elements compare so, each operand stretched to the sizes of y; or a truth of truths. Four truths in a word.
override COUNT: u32; // elements of y
override RANK: u32;
override TYPE: u32; // of the operands: 0: float, 1: i32, 2: u32, 3: i64, 4: truth, 5: f16
// 0: ==, 1: <, 2: <=, 3: >, 4: >=, 5: and, 6: or, 7: xor; of the first alone 8: not, 9: not a number, 10: infinite,
// 11: infinite and positive, 12: infinite and negative
override RELATION: u32;

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read> sizes: array<u32>; // of y; strides of a; strides of b
@group(0) @binding(3) var<storage, read_write> y: array<u32>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

// Whether a < b, and whether they are equal.
fn ordered_floats(a: f32, b: f32) -> vec2<bool> {
    return vec2<bool>(a < b, a == b);
}

fn ordered(p: u32, q: u32) -> vec2<bool> {
    if TYPE == 0u {
        return ordered_floats(bitcast<f32>(a[p]), bitcast<f32>(b[q]));
    }
    if TYPE == 5u {
        let left = unpack2x16float(a[p / 2u] >> (p % 2u * 16u)).x;
        return ordered_floats(left, unpack2x16float(b[q / 2u] >> (q % 2u * 16u)).x);
    }
    if TYPE == 1u {
        return vec2<bool>(bitcast<i32>(a[p]) < bitcast<i32>(b[q]), a[p] == b[q]);
    }
    if TYPE == 3u {
        let high = vec2<i32>(bitcast<i32>(a[2u * p + 1u]), bitcast<i32>(b[2u * q + 1u]));
        let low = vec2<u32>(a[2u * p], b[2u * q]);
        let alike = high.x == high.y;
        return vec2<bool>(high.x < high.y || (alike && low.x < low.y), alike && low.x == low.y);
    }
    if TYPE == 4u {
        let left = ((a[p / 4u] >> (p % 4u * 8u)) & 255u) != 0u;
        let right = ((b[q / 4u] >> (q % 4u * 8u)) & 255u) != 0u;
        // For `and`, `or`, `xor`: the truths themselves.
        return vec2<bool>(left, right);
    }
    return vec2<bool>(a[p] < b[q], a[p] == b[q]);
}

// Whether element p of a is infinite, of the sign that counts.
fn is_infinite(p: u32) -> bool {
    var bits = 0u;
    if TYPE == 0u {
        bits = a[p];
    } else {
        let half = a[p / 2u] >> (p % 2u * 16u);
        bits = ((half & 0x8000u) << 16u) | select(0u, 0x7f800000u, (half & 0x7fffu) == 0x7c00u);
    }
    let negative = bits >= 0x80000000u;
    return (bits & 0x7fffffffu) == 0x7f800000u && RELATION != select(12u, 11u, negative);
}

fn relation(e: u32) -> bool {
    var p = 0u;
    var q = 0u;
    var rest = e;
    for (var d = RANK; d > 0u; d--) {
        p += rest % sizes[d - 1u] * sizes[RANK + d - 1u];
        q += rest % sizes[d - 1u] * sizes[2u * RANK + d - 1u];
        rest /= sizes[d - 1u];
    }
    if RELATION == 9u {
        return is_nan(p, q);
    }
    if RELATION >= 10u {
        return is_infinite(p);
    }
    let found = ordered(p, q);
    let unordered = (TYPE == 0u || TYPE == 5u) && !found.x && !found.y && is_nan(p, q);
    switch RELATION {
        case 0u: { return select(found.y, found.x == found.y, TYPE == 4u); }
        case 1u: { return found.x; }
        case 2u: { return found.x || found.y; }
        case 3u: { return !found.x && !found.y && !unordered; }
        case 4u: { return !found.x && !unordered; }
        case 5u: { return found.x && found.y; }
        case 6u: { return found.x || found.y; }
        case 7u: { return found.x != found.y; }
        default: { return !found.x; }
    }
}

fn is_nan(p: u32, q: u32) -> bool {
    if TYPE == 0u {
        return (a[p] & 0x7fffffffu) > 0x7f800000u || (b[q] & 0x7fffffffu) > 0x7f800000u;
    }
    let left = (a[p / 2u] >> (p % 2u * 16u)) & 0x7fffu;
    return left > 0x7c00u || ((b[q / 2u] >> (q % 2u * 16u)) & 0x7fffu) > 0x7c00u;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let w = group.x * 1024u + i * 256u + lane;
        if 4u * w < COUNT {
            var word = 0u;
            for (var k = 0u; k < 4u && 4u * w + k < COUNT; k++) {
                word |= u32(relation(4u * w + k)) << (8u * k);
            }
            y[w] = word;
        }
    }
}
