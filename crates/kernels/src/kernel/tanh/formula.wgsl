fn formula(v: f32) -> f32 {
    return tanh_accurate(v);
}

