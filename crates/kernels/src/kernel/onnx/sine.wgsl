// Sine and cosine of any angle in radians. WGSL's own may be off by 2^-11 and are open beyond pi. An angle below 1/2 goes
// through polynomials. Of a larger one the 24 bits of its mantissa are multiplied with those bits of 1 / 2 pi that make less
// than one turn, which gives the fraction of a turn in 64 bits (Payne and Hanek, ACM SIGNUM Newsletter 18, 1983).

// Word i of 1 / 2 pi: word 0 stands before the point.
fn turn_word(i: u32) -> u32 {
    switch i {
        case 1u: { return 0x28be60dbu; }
        case 2u: { return 0x9391054au; }
        case 3u: { return 0x7f09d5f4u; }
        case 4u: { return 0x7d4d3770u; }
        case 5u: { return 0x36d8a566u; }
        case 6u: { return 0x4f10e410u; }
        case 7u: { return 0x7f9458eau; }
        default: { return 0u; }
    }
}

// 32 bits of it from a bit on.
fn turn_bits(at: u32) -> u32 {
    let word = turn_word(at / 32u);
    let shift = at % 32u;
    if shift == 0u {
        return word;
    }
    return (word << shift) | (turn_word(at / 32u + 1u) >> (32u - shift));
}

// Cosine and sine of v radians; not a number for what is not finite.
fn cos_sin_of(v: f32) -> vec2<f32> {
    let bits = bitcast<u32>(v) & 0x7fffffffu;
    if bits >= 0x7f800000u {
        return vec2<f32>(bitcast<f32>(bits | 0x400000u));
    }
    if bits < 0x3f000000u {
        let z = v * v;
        let sp = fma(z, fma(z, fma(z, 2.7182352e-6, -0.00019839327), 0.0083333291), -0.16666667);
        let cp = fma(z, fma(z, fma(z, -2.7209515e-7, 2.4799512e-5), -0.0013888883), 0.041666668);
        return vec2<f32>(1.0 - fma(z * z, -cp, 0.5 * z), fma(v * z, sp, v));
    }
    // v = m 2^(exponent - 150), of which the fraction begins exponent - 118 bits behind the first of word 0.
    let m = (bits & 0x7fffffu) | 0x800000u;
    let at = (bits >> 23u) - 118u;
    let low = upper_product(m, turn_bits(at + 64u));
    let middle = m * turn_bits(at + 32u) + low;
    let carry = u32(middle < low);
    let high = m * turn_bits(at) + upper_product(m, turn_bits(at + 32u)) + carry;
    let found = cos_sin(high, middle);
    return vec2<f32>(found.x, select(found.y, -found.y, v < 0.0));
}

