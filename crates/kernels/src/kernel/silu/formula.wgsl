// v / (1 + exp(-v)). With e = exp(-|v|) nothing overflows: v e / (1 + e) for v < 0.
fn formula(v: f32) -> f32 {
    let e = exp_accurate(-abs(v));
    return select(v, v * e, v < 0.0) / (1.0 + e);
}

