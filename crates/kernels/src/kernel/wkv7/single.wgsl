@group(0) @binding(5) var<storage, read> b: array<act>;

fn replacement_at(e: u32) -> f32 {
    return f32(b[e]);
}
