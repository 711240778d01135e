// (e^v - e^-v) / 2; up to 1 by an odd polynomial (minimax fit, error 7e-9), as the difference would cancel. e^|v| is the square
// of e^(|v| / 2), which does not overflow before the result does.
fn formula(v: f32) -> f32 {
    let a = abs(v);
    if a < 1.0 {
        let z = v * v;
        let p = fma(z, fma(z, fma(z, 2.8174396e-6, 0.00019836067), 0.0083333505), 0.16666667);
        return fma(v * z, p, v);
    }
    let root = exp_accurate(0.5 * a);
    let far = (0.5 * root) * root - (0.5 / root) / root;
    return select(far, -far, v < 0.0);
}
