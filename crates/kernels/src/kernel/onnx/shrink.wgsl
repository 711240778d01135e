override BIAS: f32;
override LIMIT: f32;

fn formula(v: f32) -> f32 {
    let shrunk = select(select(0.0, v - BIAS, v > LIMIT), v + BIAS, v < -LIMIT);
    return select(shrunk, v, is_nan(v));
}
