// The error function. Near 0 by its Taylor series in v^2 (error 1e-9 up to 1/2), else by the share of a normal
// distribution beyond sqrt(2) |v|: exp(-v^2) u P(u) with u = 1 / (1 + sqrt(2) |v| / 4), a minimax fit of relative error 1.3e-8.
fn tail(a: f32) -> f32 {
    let u = 1.0 / fma(a, 0.25, 1.0);
    let p9 = fma(u, 0.018983677, -0.0759831071);
    let p7 = fma(u, fma(u, p9, 0.0830118731), -0.0138730854);
    let p5 = fma(u, fma(u, p7, 0.0483351611), 0.0672868937);
    let p3 = fma(u, fma(u, p5, 0.0787867382), 0.094040677);
    let p1 = fma(u, fma(u, p3, 0.0996726751), 0.099738501);
    return exp_accurate(-0.5 * a * a) * u * p1;
}

fn formula(v: f32) -> f32 {
    let z = v * v;
    let s5 = fma(z, fma(z, fma(z, 1.3227513e-5, -0.00010683761), 0.00075757576), -0.0046296296);
    let series = fma(z, fma(z, fma(z, s5, 0.023809524), -0.1), 0.33333333);
    let near = 1.1283792 * fma(-v * z, series, v);
    let far = 1.0 - 2.0 * tail(min(abs(v), 20.0) * 1.4142136);
    return select(select(far, -far, v < 0.0), near, z < 0.25 || v != v);
}
