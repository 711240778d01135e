// v times the share of a normal distribution below v, by the error function or by its fit with tanh or the logistic
// function. All compute the share q below -|v| first and take 1 - q for v > 0, so that none overflows or cancels.
override FORM: u32; // 0: by the error function, 1: tanh, 2: the logistic function

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

// (1 - tanh z) / 2 = e / (1 + e) with e = exp(-2 z) and z = sqrt(2 / pi) (a + 0.044715 a^3), for a >= 0.
fn tail_tanh(a: f32) -> f32 {
    let e = exp_accurate(-1.5957691 * fma(0.044715 * a * a, a, a));
    return e / (1.0 + e);
}

// 1 / (1 + exp(1.702 a)) for a >= 0.
fn tail_quick(a: f32) -> f32 {
    let e = exp_accurate(-1.702 * a);
    return e / (1.0 + e);
}

fn formula(v: f32) -> f32 {
    // From 80 on the share is 0 in f32 by any of them; the squares and cubes of larger values could overflow.
    let a = select(abs(v), 80.0, abs(v) > 80.0);
    var q: f32;
    if FORM == 0u {
        q = tail(a);
    } else if FORM == 1u {
        q = tail_tanh(a);
    } else {
        q = tail_quick(a);
    }
    return v * select(1.0 - q, q, v < 0.0);
}

