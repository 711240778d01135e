// y = (sum + bias) * a_scale * b_scale / y_scale rounded to the even one of two integers, plus the zero point, within the integers
// of y, four in a word.
override COUNT: u32; // elements
override WORDS: u32; // words of y
override HAS_BIAS: u32;
override A_INNER: u32 = 1u; // elements of one scale of a
override A_COUNT: u32 = 1u; // scales of a
override B_INNER: u32 = 1u; // elements of one scale of b, and of one bias
override B_COUNT: u32 = 1u; // scales of b
override BIASES: u32 = 1u;

@group(0) @binding(0) var<storage, read> sums: array<i32>;
@group(0) @binding(1) var<storage, read> bias: array<i32>; // not read unless HAS_BIAS
@group(0) @binding(2) var<storage, read> a_scale: array<f32>;
@group(0) @binding(3) var<storage, read> b_scale: array<f32>;
@group(0) @binding(4) var<storage, read> y_scale: array<f32>;
@group(0) @binding(5) var<storage, read> zero: array<u32>;
@group(0) @binding(6) var<storage, read_write> y: array<u32>;
@group(0) @binding(7) var<uniform> symbols: Symbols;

fn quantized(e: u32) -> i32 {
    var sum = sums[e];
    if HAS_BIAS == 1u {
        sum += bias[e / B_INNER % BIASES];
    }
    let scale = a_scale[e / A_INNER % A_COUNT] * b_scale[e / B_INNER % B_COUNT] / y_scale[0];
    return rounded(f32(sum) * scale, integer_of(zero[0], 0u));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let w = group.x * 1024u + i * 256u + lane;
        if w < WORDS {
            var word = 0u;
            for (var k = 0u; k < 4u && 4u * w + k < COUNT; k++) {
                word |= (bitcast<u32>(quantized(4u * w + k)) & 255u) << (8u * k);
            }
            y[w] = word;
        }
    }
}
