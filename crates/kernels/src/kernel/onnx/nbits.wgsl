// Weights of BITS bits in blocks along K, the first of a word in its low bits: BLOCKS blocks of each of N columns of a product,
// (number - zero point) * scale each.
override M: u32; // rows of the product
override N: u32;
override K: u32;
override BITS: u32;
override BLOCK: u32; // numbers of a block: a power of two from 16
override BLOCKS: u32; // of a column
override ZEROS: u32; // zero points: 0: the middle, 1: packed as the numbers, each column beginning a byte, 2: f32, 3: f16
override HAS_BIAS: u32;

@group(0) @binding(0) var<storage, read> a: array<act>; // [M, K]
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<act>; // [N, BLOCKS]
@group(0) @binding(3) var<storage, read> zeros: array<u32>; // not read unless ZEROS
@group(0) @binding(4) var<storage, read> bias: array<act>; // not read unless HAS_BIAS
@group(0) @binding(5) var<storage, read_write> y: array<act>;
@group(0) @binding(6) var<uniform> symbols: Symbols;

// The zero point of a block of a column.
fn zero_point(n: u32, block: u32) -> f32 {
    if ZEROS == 0u {
        return f32(1u << (BITS - 1u));
    }
    let at = n * BLOCKS + block;
    if ZEROS == 2u {
        return bitcast<f32>(zeros[at]);
    }
    if ZEROS == 3u {
        return unpack2x16float(zeros[at / 2u] >> (at % 2u * 16u)).x;
    }
    let byte = n * ((BLOCKS * BITS + 7u) / 8u) + block * BITS / 8u;
    let bit = byte % 4u * 8u + block * BITS % 8u;
    return f32((zeros[byte / 4u] >> bit) & ((1u << BITS) - 1u));
}

// Four neighbouring numbers of a word, from this bit on.
fn numbers(word: u32, bit: u32) -> vec4<f32> {
    let at = vec4<u32>(0u, 1u, 2u, 3u) * BITS + bit;
    return vec4<f32>((vec4<u32>(word) >> at) & vec4<u32>((1u << BITS) - 1u));
}

