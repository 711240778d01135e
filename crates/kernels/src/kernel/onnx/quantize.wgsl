// y = x / scale rounded to the even one of two integers, plus the zero point, within the integers of y. A word holds several.
override COUNT: u32; // elements
override WORDS: u32; // words of y
override HAS_ZERO: u32;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> scale: array<act>;
@group(0) @binding(2) var<storage, read> zero: array<u32>; // not read unless HAS_ZERO
@group(0) @binding(3) var<storage, read_write> y: array<u32>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

// With one step of correction behind the division, which may be off by more than half a unit in the last place.
fn quotient(v: f32, by: f32) -> f32 {
    let q = v / by;
    let rest = fma(-q, by, v) / by;
    return select(q, q + rest, abs(q) < 131072.0 && abs(rest) < 1.0);
}

fn quantized(e: u32) -> i32 {
    let p = scale_of(e);
    var offset = 0;
    if HAS_ZERO == 1u {
        offset = integer_of(zero[p / per_word()], p);
    }
    return rounded(quotient(f32(x[e]), f32(scale[p])), offset);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let w = group.x * 1024u + i * 256u + lane;
        if w < WORDS {
            var word = 0u;
            for (var k = 0u; k < per_word() && w * per_word() + k < COUNT; k++) {
                let bits = bitcast<u32>(quantized(w * per_word() + k)) & ((1u << BITS) - 1u);
                word |= bits << (k * BITS);
            }
            y[w] = word;
        }
    }
}
