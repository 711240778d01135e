// Elements `at` of gate and of up, one for each of four rows.
fn gate_one(at: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(
        weight_value(gate[weight_word(at.x)], at.x),
        weight_value(gate[weight_word(at.y)], at.y),
        weight_value(gate[weight_word(at.z)], at.z),
        weight_value(gate[weight_word(at.w)], at.w),
    );
}

fn up_one(at: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(
        weight_value(up[weight_word(at.x)], at.x),
        weight_value(up[weight_word(at.y)], at.y),
        weight_value(up[weight_word(at.z)], at.z),
        weight_value(up[weight_word(at.w)], at.w),
    );
}

// Elements `at` and `at + 1` of gate for each of four rows.
fn gate_pair(at: vec4<u32>) -> Pairs {
    if W_DTYPE == 0u || (K & 1u) == 1u {
        return Pairs(gate_one(at), gate_one(at + vec4<u32>(1u)));
    }
    let word = at >> vec4<u32>(1u);
    return weight_pairs(vec4<u32>(gate[word.x], gate[word.y], gate[word.z], gate[word.w]));
}

// Elements `at` and `at + 1` of up for each of four rows.
fn up_pair(at: vec4<u32>) -> Pairs {
    if W_DTYPE == 0u || (K & 1u) == 1u {
        return Pairs(up_one(at), up_one(at + vec4<u32>(1u)));
    }
    let word = at >> vec4<u32>(1u);
    return weight_pairs(vec4<u32>(up[word.x], up[word.y], up[word.z], up[word.w]));
}
