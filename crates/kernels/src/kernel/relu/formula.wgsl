// max(v, 0), and NaN where v is NaN.
fn formula(v: f32) -> f32 {
    return select(v, 0.0, v < 0.0);
}

