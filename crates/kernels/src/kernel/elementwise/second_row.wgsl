@group(0) @binding(1) var<storage, read> b: array<u32>; // a row for every row of a, stored as weights are

// What meets element e of a.
fn second(e: u32) -> f32 {
    let at = e % K;
    return weight_value(b[weight_word(at)], at);
}
