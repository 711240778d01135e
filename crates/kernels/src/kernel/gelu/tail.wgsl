// erfc(a / sqrt(2)) / 2 for a >= 0: exp(-a^2 / 2) u P(u) with u = 1 / (1 + a/4) and P a minimax fit for a up to 20 of
// relative error 1.3e-8.
fn tail(a: f32) -> f32 {
    let u = 1.0 / fma(a, 0.25, 1.0);
    let p9 = fma(u, 0.018983677, -0.0759831071);
    let p7 = fma(u, fma(u, p9, 0.0830118731), -0.0138730854);
    let p5 = fma(u, fma(u, p7, 0.0483351611), 0.0672868937);
    let p3 = fma(u, fma(u, p5, 0.0787867382), 0.094040677);
    let p1 = fma(u, fma(u, p3, 0.0996726751), 0.099738501);
    return exp_accurate(-0.5 * a * a) * u * p1;
}

