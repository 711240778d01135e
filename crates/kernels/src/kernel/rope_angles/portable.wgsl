// y[i] = SCALE * cos and sin of t * f for each of D frequencies f, with the position t of row i.
//
// WGSL's own cos and sin may be off by 2^-11, and position times frequency loses the bits that count at far positions.
// So angles are fractions of a turn in fixed point: f / 2 pi as 64 bits, times the position, modulo one turn, is exact.
// The nearest quarter turn is taken off, and what remains, at most an eighth of a turn, goes through polynomials.
override D: u32;
override SCALE: f32 = 1.0;
override LONG: u32 = 0u; // whether texts of more than AFTER tokens take the second frequencies and LONG_SCALE
override AFTER: u32 = 0u;
override LONG_SCALE: f32 = 1.0;
override RATE: f32 = 0.0; // growth of the dynamic scaling's ratio for each token after ORIGINAL; 0: not dynamic
override ORIGINAL: u32 = 0u;
override GIVEN: u32 = 0u; // whether positions are given
override LENGTHS: u32 = 0u; // whether the lengths of the rows' texts are given
override AXES: u32 = 0u; // whether they differ between pairs

@group(0) @binding(0) var<storage, read> positions: array<u32>; // not read unless GIVEN
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
// f / 2 pi of each pair: upper word, lower word; then the same of long texts if LONG; then each pair's axis if AXES.
@group(0) @binding(2) var<storage, read> turns: array<u32>;
@group(0) @binding(3) var<storage, read> lengths: array<u32>; // not read unless LENGTHS
@group(0) @binding(4) var<uniform> symbols: Symbols;

// Base 2 logarithm of v >= 1: whole part and the rest, at most a half either way. ln m = 2 artanh((m - 1) / (m + 1)) by
// its series, error 2e-10 up to the square root of 2.
fn log2_parts(v: f32) -> vec2<f32> {
    let bits = bitcast<u32>(v);
    let over = u32((bits & 0x7fffffu) > 0x3504f3u);
    let m = bitcast<f32>((bits & 0x7fffffu) | ((127u - over) << 23u));
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let series = fma(z, fma(z, fma(z, fma(z, 0.11111111, 0.14285715), 0.2), 0.33333334), 1.0);
    return vec2<f32>(f32((bits >> 23u) + over - 127u), s * series * 2.885390);
}

// Frequency `f` of pair `j` in a text of `length` tokens: f * r^(-j / (D - 1)), D > 1, with r = 1 + RATE * (length - ORIGINAL).
//
// The exponent of 2 is taken as a whole number, exact, and a fraction, so that it loses no bits for a large r.
fn slowed(f: vec2<u32>, j: u32, length: u32) -> vec2<u32> {
    let gaps = max(D, 2u) - 1u;
    let log = log2_parts(fma(RATE, f32(length - ORIGINAL), 1.0));
    let steps = j * u32(log.x);
    let part = f32(steps % gaps) / f32(gaps) + f32(j) / f32(gaps) * log.y;
    let shift = u32(i32(steps / gaps) + i32(floor(part)));
    // The factor as 31 bits behind the point, then whole bits.
    let factor = u32(round(exp_accurate(-0.6931472 * (part - floor(part))) * 2147483648.0));
    let negative = (f.x & 0x80000000u) != 0u;
    var v = f;
    if negative {
        v = negated(v);
    }
    let low = upper_product(v.y, factor);
    let middle = v.x * factor + low;
    let carry = u32(middle < low);
    let high = upper_product(v.x, factor) + carry;
    v = vec2<u32>((high << 1u) | (middle >> 31u), (middle << 1u) | ((v.y * factor) >> 31u));
    if shift >= 32u {
        v = vec2<u32>(0u, select(0u, v.x >> (shift & 31u), shift < 64u));
    } else if shift > 0u {
        v = vec2<u32>(v.x >> shift, (v.y >> shift) | (v.x << (32u - shift)));
    }
    if negative {
        v = negated(v);
    }
    return v;
}

// The position of a row for pair `j`.
fn position_of(row: u32, j: u32) -> u32 {
    if GIVEN == 0u {
        return symbols.p + row;
    }
    if AXES == 0u {
        return positions[row];
    }
    return positions[turns[2u * D * (1u + LONG) + j] * row_count(symbols) + row];
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * D;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < count {
            let row = e / D;
            let j = e % D;
            var length = symbols.n + symbols.p;
            if LENGTHS != 0u {
                length = lengths[row];
            }
            let long = LONG != 0u && length > AFTER;
            let scale = select(SCALE, LONG_SCALE, long);
            let at = 2u * (j + select(0u, D, long));
            var f = vec2<u32>(turns[at], turns[at + 1u]);
            if RATE != 0.0 && length > ORIGINAL {
                f = slowed(f, j, length);
            }
            let position = position_of(row, j);
            let value = cos_sin(position * f.x + upper_product(position, f.y), position * f.y);
            y[row * 2u * D + j] = scale * value.x;
            y[row * 2u * D + D + j] = scale * value.y;
        }
    }
}
