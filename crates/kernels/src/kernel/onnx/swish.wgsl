// v / (1 + e^(-ALPHA v)), by the exponential of what is not positive.
override ALPHA: f32;

fn formula(v: f32) -> f32 {
    let w = ALPHA * v;
    let e = exp_accurate(-abs(w));
    return v * (select(1.0, e, w < 0.0) / (1.0 + e));
}
