// y = x in another type. Floats lose their fraction on the way to integers and stay within their range; integers wrap.
override COUNT: u32; // elements
override WORDS: u32; // words of y
override FROM: u32; // 0: f32, 1: i32, 2: u32, 3: i64, 4: truth, 5: f16, 6: u8, 7: i8
override TO: u32; // as FROM

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

// Element e of a type of floats.
fn float(e: u32) -> f32 {
    if FROM == 0u {
        return bitcast<f32>(x[e]);
    }
    return unpack2x16float(x[e / 2u] >> (e % 2u * 16u)).x;
}

// A float as an integer: lower and upper word.
fn of_float(v: f32) -> vec2<u32> {
    if TO == 2u {
        return vec2<u32>(u32(clamp(v, 0.0, 4294967040.0)), 0u);
    }
    if TO == 3u {
        // The greatest float below 2^63. A float has 24 bits, so that both words are exact.
        let size = min(trunc(abs(v)), 9223371487098961920.0);
        let high = u32(size / 4294967296.0);
        let low = u32(size - f32(high) * 4294967296.0);
        let negated = vec2<u32>(~low + 1u, ~high + u32(low == 0u));
        return select(vec2<u32>(low, high), negated, v < 0.0);
    }
    let narrow = i32(clamp(v, -2147483648.0, 2147483520.0));
    return vec2<u32>(bitcast<u32>(narrow), bitcast<u32>(narrow >> 31u));
}

// Element e as an integer: lower and upper word.
fn whole(e: u32) -> vec2<u32> {
    switch FROM {
        case 1u: { return vec2<u32>(x[e], bitcast<u32>(bitcast<i32>(x[e]) >> 31u)); }
        case 2u: { return vec2<u32>(x[e], 0u); }
        case 3u: { return vec2<u32>(x[2u * e], x[2u * e + 1u]); }
        case 4u: { return vec2<u32>(u32(((x[e / 4u] >> (e % 4u * 8u)) & 255u) != 0u), 0u); }
        case 6u: { return vec2<u32>((x[e / 4u] >> (e % 4u * 8u)) & 255u, 0u); }
        case 7u: {
            let v = bitcast<i32>(x[e / 4u] << (24u - e % 4u * 8u)) >> 24u;
            return vec2<u32>(bitcast<u32>(v), bitcast<u32>(v >> 31u));
        }
        default: { return of_float(float(e)); }
    }
}

// Element e as a float.
fn number(e: u32) -> f32 {
    if is_float() {
        return float(e);
    }
    let v = whole(e);
    if FROM == 2u {
        return f32(v.x);
    }
    // Numbers within 32 bits are rounded once.
    let low = bitcast<i32>(v.x);
    let high = bitcast<i32>(v.y);
    return select(fma(f32(high), 4294967296.0, f32(v.x)), f32(low), high == low >> 31u);
}

fn is_float() -> bool {
    return FROM == 0u || FROM == 5u;
}

// Element e as the bits of the type that is wanted; half 1 is the upper word of an i64.
fn bits_of(e: u32, half: u32) -> u32 {
    switch TO {
        case 0u: { return bitcast<u32>(number(e)); }
        case 5u: {
            let v = round_to_half(number(e));
            // WGSL leaves open what becomes of numbers beyond binary16.
            let sign = (bitcast<u32>(v) >> 16u) & 0x8000u;
            let beyond = sign | select(0x7c00u, 0x7e00u, is_nan(v));
            let within = !is_nan(v) && abs(v) < 65520.0;
            return select(beyond, pack2x16float(vec2<f32>(select(0.0, v, within), 0.0)) & 0xffffu, within);
        }
        case 4u: {
            if is_float() {
                return u32(number(e) != 0.0);
            }
            let v = whole(e);
            return u32((v.x | v.y) != 0u);
        }
        case 3u: { return select(whole(e).x, whole(e).y, half == 1u); }
        case 6u, 7u: { return whole(e).x & 255u; }
        default: { return whole(e).x; }
    }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let w = group.x * 1024u + i * 256u + lane;
        if w < WORDS {
            var word = 0u;
            if TO == 3u {
                word = bits_of(w >> 1u, w & 1u);
            } else if TO == 4u || TO >= 6u {
                for (var k = 0u; k < 4u && 4u * w + k < COUNT; k++) {
                    word |= bits_of(4u * w + k, 0u) << (8u * k);
                }
            } else if TO == 5u {
                for (var k = 0u; k < 2u && 2u * w + k < COUNT; k++) {
                    word |= (bits_of(2u * w + k, 0u) & 0xffffu) << (16u * k);
                }
            } else {
                word = bits_of(w, 0u);
            }
            y[w] = word;
        }
    }
}
