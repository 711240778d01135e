fn gate_words(at: vec4<u32>) -> vec4<u32> {
    let word = packed_words(at);
    return vec4<u32>(gate[word.x], gate[word.y], gate[word.z], gate[word.w]);
}

fn gate_scales(group: vec4<u32>) -> vec4<f32> {
    let word = packed_scale_words(group);
    let x = gate_scale[word.x];
    let y = gate_scale[word.y];
    let z = gate_scale[word.z];
    return packed_scales(vec4<u32>(x, y, z, gate_scale[word.w]), group);
}

// Elements `at` of gate, one for each of four rows.
fn gate_one(at: vec4<u32>) -> vec4<f32> {
    let group = packed_groups(at);
    return (packed_values(gate_words(at), at) - gate_zeros(group)) * gate_scales(group);
}

// Elements `at` and `at + 1` of gate for each of four rows: `at` is even, so that both lie in one word.
fn gate_pair(at: vec4<u32>) -> Pairs {
    let group = packed_groups(at);
    let words = gate_words(at);
    let scales = gate_scales(group);
    let zeros = gate_zeros(group);
    let first = (packed_values(words, at) - zeros) * scales;
    return Pairs(first, (packed_values(words, at + vec4<u32>(1u)) - zeros) * scales);
}

fn up_words(at: vec4<u32>) -> vec4<u32> {
    let word = packed_words(at);
    return vec4<u32>(up[word.x], up[word.y], up[word.z], up[word.w]);
}

fn up_scales(group: vec4<u32>) -> vec4<f32> {
    let word = packed_scale_words(group);
    let x = up_scale[word.x];
    let y = up_scale[word.y];
    let z = up_scale[word.z];
    return packed_scales(vec4<u32>(x, y, z, up_scale[word.w]), group);
}

// Elements `at` of up, one for each of four rows.
fn up_one(at: vec4<u32>) -> vec4<f32> {
    let group = packed_groups(at);
    return (packed_values(up_words(at), at) - up_zeros(group)) * up_scales(group);
}

// Elements `at` and `at + 1` of up for each of four rows: `at` is even, so that both lie in one word.
fn up_pair(at: vec4<u32>) -> Pairs {
    let group = packed_groups(at);
    let words = up_words(at);
    let scales = up_scales(group);
    let zeros = up_zeros(group);
    let first = (packed_values(words, at) - zeros) * scales;
    return Pairs(first, (packed_values(words, at + vec4<u32>(1u)) - zeros) * scales);
}
