// (e^v + e^-v) / 2; e^|v| is the square of e^(|v| / 2), which does not overflow before the result does.
fn formula(v: f32) -> f32 {
    let root = exp_accurate(0.5 * abs(v));
    return (0.5 * root) * root + (0.5 / root) / root;
}
