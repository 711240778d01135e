@group(0) @binding(1) var<storage, read> dt: array<act>;

fn step_at(e: u32) -> f32 {
    return f32(dt[e]);
}
