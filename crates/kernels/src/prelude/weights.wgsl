// Weights lie as in the checkpoint, bound as words: one f32, or two f16 or bf16, the first in the lower half.
override W_DTYPE: u32 = 0u; // 0: f32, 1: f16, 2: bf16

// Index of the word that holds element e.
fn weight_word(e: u32) -> u32 {
    return select(e >> 1u, e, W_DTYPE == 0u);
}

// Element e, taken from its word.
fn weight_value(word: u32, e: u32) -> f32 {
    if W_DTYPE == 0u {
        return bitcast<f32>(word);
    }
    let half = select(word, word >> 16u, (e & 1u) == 1u);
    if W_DTYPE == 1u {
        return unpack2x16float(half).x;
    }
    return bitcast<f32>(half << 16u);
}

// Two neighbouring elements of each of four rows.
struct Pairs { first: vec4<f32>, second: vec4<f32> }

// Both halves of four words of f16 or bf16.
fn weight_pairs(words: vec4<u32>) -> Pairs {
    if W_DTYPE == 1u {
        let a = unpack2x16float(words.x);
        let b = unpack2x16float(words.y);
        let c = unpack2x16float(words.z);
        let d = unpack2x16float(words.w);
        return Pairs(vec4<f32>(a.x, b.x, c.x, d.x), vec4<f32>(a.y, b.y, c.y, d.y));
    }
    return Pairs(bitcast<vec4<f32>>(words << vec4<u32>(16u)), bitcast<vec4<f32>>(words & vec4<u32>(0xffff0000u)));
}

