// v times the share of a normal distribution below v, by the error function or by its fit with tanh or the logistic
// function. All compute the share q below -|v| first and take 1 - q for v > 0, so that none overflows or cancels.
override FORM: u32; // 0: by the error function, 1: tanh, 2: the logistic function

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

