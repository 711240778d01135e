@group(0) @binding(2) var<storage, read> t: array<u32>; // a row for every row, stored as weights are

// How much of b there is in element e.
fn share(e: u32) -> f32 {
    let at = e % K;
    return weight_value(t[weight_word(at)], at);
}
