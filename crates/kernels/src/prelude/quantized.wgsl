// Quantised weights lie as words of 32 / BITS elements, low bits first. GROUP neighbouring elements of a row share a scale
// and, if ZEROS, a zero point; both are f16, two in a word, the first in the lower half.
override BITS: u32 = 4u; // 4 or 8
override GROUP: u32 = 32u; // divides the row length; a multiple of the elements of a word
override ZEROS: u32 = 0u; // 0: the zero point is the middle of the range

// Indices of the words that hold elements e.
fn packed_words(e: vec4<u32>) -> vec4<u32> {
    return e / vec4<u32>(32u / BITS);
}

// Elements e as stored, taken from their words.
fn packed_values(words: vec4<u32>, e: vec4<u32>) -> vec4<f32> {
    let shift = (e * vec4<u32>(BITS)) & vec4<u32>(31u);
    return vec4<f32>((words >> shift) & vec4<u32>(0xffffffffu >> (32u - BITS)));
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

// The zero point of weights without their own.
fn packed_middle() -> vec4<f32> {
    return vec4<f32>(f32(1u << (BITS - 1u)));
}

