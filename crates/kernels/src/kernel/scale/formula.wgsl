override FACTOR: f32;

fn formula(v: f32) -> f32 {
    return FACTOR * v;
}

