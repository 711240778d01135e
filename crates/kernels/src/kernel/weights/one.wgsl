// Elements `at` of w, one for each of four rows.
fn w_one(at: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(
        weight_value(w[weight_word(at.x)], at.x),
        weight_value(w[weight_word(at.y)], at.y),
        weight_value(w[weight_word(at.z)], at.z),
        weight_value(w[weight_word(at.w)], at.w),
    );
}

// Elements `at` and `at + 1` of w for each of four rows.
fn w_pair(at: vec4<u32>) -> Pairs {
    if W_DTYPE == 0u || (K & 1u) == 1u {
        return Pairs(w_one(at), w_one(at + vec4<u32>(1u)));
    }
    let word = at >> vec4<u32>(1u);
    return weight_pairs(vec4<u32>(w[word.x], w[word.y], w[word.z], w[word.w]));
}
