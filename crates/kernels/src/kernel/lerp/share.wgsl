@group(0) @binding(2) var<storage, read> t: array<act>;

// How much of b there is in element e.
fn share(e: u32) -> f32 {
    return f32(t[e]);
}
