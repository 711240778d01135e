// Angles as fractions of a turn in fixed point.

// The upper word of a product of two words.
fn upper_product(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u);
}

// Minus an upper and a lower word.
fn negated(v: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(~v.x + u32(v.y == 0u), ~v.y + 1u);
}

// Cosine and sine of the angle upper:lower / 2^64 turns.
fn cos_sin(upper: u32, lower: u32) -> vec2<f32> {
    let quarter = (upper + 0x20000000u) >> 30u;
    var rest = vec2<u32>(upper - (quarter << 30u), lower);
    let negative = (rest.x & 0x80000000u) != 0u;
    if negative {
        rest = negated(rest);
    }
    // Radians in two parts. 2 pi = 6.28125 + 0.0019353072; the first 16 bits times 6.28125 are exact.
    let top = f32(rest.x >> 16u) * 1.52587890625e-5;
    let tail = f32(rest.x & 0xffffu) * 2.3283064365386963e-10 + f32(rest.y >> 8u) * 1.3877787807814457e-17;
    let x = top * 6.28125;
    let dx = fma(top, 0.0019353072, tail * 6.2831855);
    let s = x + dx;
    let z = s * s;
    let sp = fma(z, fma(z, fma(z, 2.7182352e-6, -0.00019839327), 0.0083333291), -0.16666667);
    let cp = fma(z, fma(z, fma(z, -2.7209515e-7, 2.4799512e-5), -0.0013888883), 0.041666668);
    let magnitude = x + fma(s * z, sp, dx);
    let sine = select(magnitude, -magnitude, negative);
    let cosine = 1.0 - fma(z * z, -cp, 0.5 * z);
    switch quarter & 3u {
        case 0u: { return vec2<f32>(cosine, sine); }
        case 1u: { return vec2<f32>(-sine, cosine); }
        case 2u: { return vec2<f32>(-cosine, -sine); }
        default: { return vec2<f32>(sine, -cosine); }
    }
}

