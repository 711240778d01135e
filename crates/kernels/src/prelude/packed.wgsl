// Packed weights lie as words of 32 / BITS elements, low bits first. GROUP neighbouring elements of a row share a scale and,
// if ZEROS, a zero point; both are f16, two in a word, the first in the lower half. Scales of e2m1 are bytes, four in a word.
override BITS: u32 = 4u; // 4 or 8
override GROUP: u32 = 32u; // divides the row length; a multiple of the elements of a word
override ZEROS: u32 = 0u; // 0: the zero point is the middle of the range
override CODE: u32 = 0u; // what elements are; 0 and 1: integers, 2: e4m3, 3: e2m1, both with the zero point 0

// Indices of the words that hold elements e.
fn packed_words(e: vec4<u32>) -> vec4<u32> {
    return e / vec4<u32>(32u / BITS);
}

// Elements e as stored, taken from their words.
fn packed_values(words: vec4<u32>, e: vec4<u32>) -> vec4<f32> {
    let shift = (e * vec4<u32>(BITS)) & vec4<u32>(31u);
    if CODE == 2u {
        return float8((words >> shift) & vec4<u32>(0xffu));
    }
    if CODE == 3u {
        return float4((words >> shift) & vec4<u32>(0xfu));
    }
    return vec4<f32>((words >> shift) & vec4<u32>(0xffffffffu >> (32u - BITS)));
}

// Numbers of a sign, 4 bits of exponent and 3 of mantissa, over 256: the bias of the exponent is 7, that of f32 127.
fn float8(stored: vec4<u32>) -> vec4<f32> {
    let size = stored & vec4<u32>(0x7fu);
    let normal = bitcast<vec4<f32>>((size << vec4<u32>(20u)) + vec4<u32>((127u - 7u - 8u) << 23u));
    let least = vec4<f32>(size) * 0.00000762939453125; // 2^-17
    let number = select(normal, least, size < vec4<u32>(8u));
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(number) | ((stored & vec4<u32>(0x80u)) << vec4<u32>(24u)));
}

// The four numbers of a word. As f16 they have one more bit of exponent, and are the same over 256.
fn float8_word(word: u32) -> vec4<f32> {
    let even = unpack2x16float(((word & 0x007f007fu) << 7u) | ((word & 0x00800080u) << 8u));
    let odd = unpack2x16float(((word & 0x7f007f00u) >> 1u) | (word & 0x80008000u));
    return vec4<f32>(even.x, odd.x, even.y, odd.y);
}

// Numbers of a sign, 2 bits of exponent and 1 of mantissa: the bias of the exponent is 1, that of f32 127.
fn float4(stored: vec4<u32>) -> vec4<f32> {
    let size = stored & vec4<u32>(7u);
    let normal = bitcast<vec4<f32>>((size << vec4<u32>(22u)) + vec4<u32>((127u - 1u) << 23u));
    let number = select(normal, vec4<f32>(size) * 0.5, size < vec4<u32>(2u));
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(number) | ((stored & vec4<u32>(8u)) << vec4<u32>(28u)));
}

// The groups of elements e.
fn packed_groups(e: vec4<u32>) -> vec4<u32> {
    return e / vec4<u32>(GROUP);
}

// Scales or zero points i, taken from their words.
fn packed_halves(words: vec4<u32>, i: vec4<u32>) -> vec4<f32> {
    let half = select(words, words >> vec4<u32>(16u), (i & vec4<u32>(1u)) == vec4<u32>(1u));
    return vec4<f32>(
        unpack2x16float(half.x).x,
        unpack2x16float(half.y).x,
        unpack2x16float(half.z).x,
        unpack2x16float(half.w).x,
    );
}

// Indices of the words that hold scales i.
fn packed_scale_words(i: vec4<u32>) -> vec4<u32> {
    return i >> select(vec4<u32>(1u), vec4<u32>(2u), CODE == 3u);
}

// Scales i, taken from their words: f16, or powers of two of which a byte is the exponent (e8m0).
fn packed_scales(words: vec4<u32>, i: vec4<u32>) -> vec4<f32> {
    if CODE != 3u {
        return packed_halves(words, i);
    }
    let exponent = (words >> ((i & vec4<u32>(3u)) * 8u)) & vec4<u32>(0xffu);
    // 2^-127 has no bit of exponent; 255 is NaN.
    let least = select(exponent << vec4<u32>(23u), vec4<u32>(0x400000u), exponent == vec4<u32>(0u));
    return bitcast<vec4<f32>>(select(least, vec4<u32>(0x7fc00000u), exponent == vec4<u32>(255u)));
}

// The zero point of weights without their own.
fn packed_middle() -> vec4<f32> {
    if CODE > 1u {
        return vec4<f32>();
    }
    return vec4<f32>(f32(1u << (BITS - 1u)));
}

