override CAP: f32;

fn formula(v: f32) -> f32 {
    return CAP * tanh_accurate(v / CAP);
}

