// The error function. Near 0 by its Taylor series in v^2 (error 1e-9 up to 1/2), else by the share of a normal distribution
// beyond sqrt(2) |v|.
fn formula(v: f32) -> f32 {
    let z = v * v;
    let s5 = fma(z, fma(z, fma(z, 1.3227513e-5, -0.00010683761), 0.00075757576), -0.0046296296);
    let series = fma(z, fma(z, fma(z, s5, 0.023809524), -0.1), 0.33333333);
    let near = 1.1283792 * fma(-v * z, series, v);
    let far = 1.0 - 2.0 * tail(min(abs(v), 20.0) * 1.4142136);
    return select(select(far, -far, v < 0.0), near, z < 0.25 || is_nan(v));
}
