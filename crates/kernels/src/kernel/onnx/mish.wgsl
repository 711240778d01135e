// v tanh(ln(1 + e^v)) = v n / (n + 2) with n = e^v (e^v + 2), which cancels nothing.
fn formula(v: f32) -> f32 {
    let e = exp_accurate(select(v, 20.0, v > 20.0));
    let n = e * (e + 2.0);
    return v * (n / (n + 2.0));
}
