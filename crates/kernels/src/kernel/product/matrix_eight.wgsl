
// Four numbers in two planes of f16: the nearest f16 of each, and what is left, which f16 holds.
fn put_four(at: u32, word: u32, scale: f32) {
    let stored = (vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);
    let values = (vec4<f32>(stored) - 128.0) * scale;
    let nearest = vec4<f16>(values);
    tiles[at] = nearest;
    tiles[PLANE + at] = vec4<f16>(values - vec4<f32>(nearest));
}

fn put_share(at: u32, words: vec4<u32>, stored: u32) {
    let scale = unpack2x16float(stored).x;
    put_four(at, words.x, scale);
    put_four(at + 1u, words.y, scale);
    put_four(at + 2u, words.z, scale);
    put_four(at + 3u, words.w, scale);
}
