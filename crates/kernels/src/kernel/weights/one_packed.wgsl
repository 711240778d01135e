fn w_words(at: vec4<u32>) -> vec4<u32> {
    let word = packed_words(at);
    return vec4<u32>(w[word.x], w[word.y], w[word.z], w[word.w]);
}

fn w_scales(group: vec4<u32>) -> vec4<f32> {
    let word = packed_scale_words(group);
    return packed_scales(vec4<u32>(scale[word.x], scale[word.y], scale[word.z], scale[word.w]), group);
}

fn w_zeros(group: vec4<u32>) -> vec4<f32> {
    if ZEROS == 0u {
        return packed_middle();
    }
    let word = group >> vec4<u32>(1u);
    return packed_halves(vec4<u32>(zero[word.x], zero[word.y], zero[word.z], zero[word.w]), group);
}

// Elements `at` of w, one for each of four rows.
fn w_one(at: vec4<u32>) -> vec4<f32> {
    let group = packed_groups(at);
    return (packed_values(w_words(at), at) - w_zeros(group)) * w_scales(group);
}

// Elements `at` and `at + 1` of w for each of four rows: `at` is even, so that both lie in one word.
fn w_pair(at: vec4<u32>) -> Pairs {
    let group = packed_groups(at);
    let words = w_words(at);
    let scales = w_scales(group);
    let zeros = w_zeros(group);
    let first = (packed_values(words, at) - zeros) * scales;
    return Pairs(first, (packed_values(words, at + vec4<u32>(1u)) - zeros) * scales);
}
