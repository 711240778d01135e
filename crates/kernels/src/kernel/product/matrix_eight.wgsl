
// Four numbers in two planes of f16: the upper 11 bits of each, and what is left, which f16 holds. The bits are cut off as
// such: a compiler may take a conversion to f16 and back for the number itself, and then nothing would be left.
fn put_four(at: u32, word: u32, scale: f32) {
    let stored = (vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);
    let values = (vec4<f32>(stored) - 128.0) * scale;
    let upper = bitcast<vec4<f32>>(bitcast<vec4<u32>>(values) & vec4<u32>(0xffffe000u));
    tiles[at] = vec4<f16>(upper);
    tiles[PLANE + at] = vec4<f16>(values - upper);
}

fn put_share(at: u32, words: vec4<u32>, stored: u32) {
    let scale = unpack2x16float(stored).x;
    put_four(at, words.x, scale);
    put_four(at + 1u, words.y, scale);
    put_four(at + 2u, words.z, scale);
    put_four(at + 3u, words.w, scale);
}
