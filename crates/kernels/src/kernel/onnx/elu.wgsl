// GAMMA times v, or times ALPHA (exp(v) - 1) below 0. Near 0 the difference would cancel: there it is a series, error 1e-9.
override ALPHA: f32;
override GAMMA: f32 = 1.0;

fn formula(v: f32) -> f32 {
    let near = fma(v, fma(v, fma(v, fma(v, 0.0083333333, 0.041666667), 0.16666667), 0.5), 1.0) * v;
    let below = select(exp_accurate(v) - 1.0, near, v > -0.1);
    return GAMMA * select(v, ALPHA * below, v < 0.0);
}
