// GAMMA times v, or times ALPHA (exp(v / DIVISOR) - 1) below 0. Near 0 the difference would cancel: there it is a series, error
// 1e-9.
override ALPHA: f32;
override GAMMA: f32 = 1.0;
override DIVISOR: f32 = 1.0;

fn formula(v: f32) -> f32 {
    let w = v / DIVISOR;
    let near = fma(w, fma(w, fma(w, fma(w, 0.0083333333, 0.041666667), 0.16666667), 0.5), 1.0) * w;
    let below = select(exp_accurate(w) - 1.0, near, abs(w) < 0.1);
    return GAMMA * select(v, ALPHA * below, v < 0.0);
}
