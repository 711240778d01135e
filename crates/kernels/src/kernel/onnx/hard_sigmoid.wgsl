// ALPHA v + BETA within 0 and 1.
override ALPHA: f32;
override BETA: f32;

fn formula(v: f32) -> f32 {
    let line = fma(ALPHA, v, BETA);
    return select(select(line, 0.0, line < 0.0), 1.0, line > 1.0);
}
