// v times v / 6 + 1 / 2 within 0 and 1.
fn formula(v: f32) -> f32 {
    let line = fma(v, 0.16666667, 0.5);
    return v * select(select(line, 0.0, line < 0.0), 1.0, line > 1.0);
}
