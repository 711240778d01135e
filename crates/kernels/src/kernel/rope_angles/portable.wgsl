// y[i] = SCALE * cos and sin of (p + i) * f for each of D frequencies f.
//
// WGSL's own cos and sin may be off by 2^-11, and position times frequency loses the bits that count at far positions.
// So angles are fractions of a turn in fixed point: f / 2 pi as 64 bits, times the position, modulo one turn, is exact.
// The nearest quarter turn is taken off, and what remains, at most an eighth of a turn, goes through polynomials.
override D: u32;
override SCALE: f32 = 1.0;

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> turns: array<u32>; // f / 2 pi: upper word, lower word
@group(0) @binding(2) var<uniform> symbols: Symbols;

// The upper word of a product of two words.
fn upper_product(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u);
}

// Cosine and sine of the angle upper:lower / 2^64 turns.
fn cos_sin(upper: u32, lower: u32) -> vec2<f32> {
    let quarter = (upper + 0x20000000u) >> 30u;
    var high = upper - (quarter << 30u);
    var low = lower;
    let negative = (high & 0x80000000u) != 0u;
    if negative {
        high = ~high + u32(low == 0u);
        low = ~low + 1u;
    }
    // Radians in two parts. 2 pi = 6.28125 + 0.0019353072; the first 16 bits times 6.28125 are exact.
    let top = f32(high >> 16u) * 1.52587890625e-5;
    let rest = f32(high & 0xffffu) * 2.3283064365386963e-10 + f32(low >> 8u) * 1.3877787807814457e-17;
    let x = top * 6.28125;
    let dx = fma(top, 0.0019353072, rest * 6.2831855);
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

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * D;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < count {
            let row = e / D;
            let j = e % D;
            let position = symbols.p + row;
            let high = turns[2u * j];
            let low = turns[2u * j + 1u];
            let value = cos_sin(position * high + upper_product(position, low), position * low);
            y[row * 2u * D + j] = SCALE * value.x;
            y[row * 2u * D + D + j] = SCALE * value.y;
        }
    }
}
