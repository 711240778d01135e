// The inverse of the tangent. |v| is brought within tan(pi / 8) by atan v = pi / 4 + atan((v - 1) / (v + 1)) and
// atan v = pi / 2 - atan(1 / v); there by an odd polynomial (minimax fit, error 2e-9).
fn formula(v: f32) -> f32 {
    let a = abs(v);
    var w = a;
    var base = 0.0;
    // What the base is off by.
    var rest = 0.0;
    if a > 2.4142137 {
        w = -1.0 / a;
        base = 1.5707964;
        rest = -4.371139e-8;
    } else if a > 0.41421357 {
        w = (a - 1.0) / (a + 1.0);
        base = 0.7853982;
        rest = -2.1855694e-8;
    }
    let z = w * w;
    let high = fma(z, fma(z, -0.060834534, 0.10596002), -0.14243849);
    let p = fma(z, fma(z, high, 0.1999849), -0.33333316);
    let found = base + (fma(w * z, p, w) + rest);
    return select(found, -found, v < 0.0);
}
