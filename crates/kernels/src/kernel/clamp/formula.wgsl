// min(max(v, MIN), MAX) with those bounds that there are, and NaN where v is NaN.
override HAS_MIN: u32;
override MIN: f32;
override HAS_MAX: u32;
override MAX: f32;

fn formula(v: f32) -> f32 {
    let above = select(v, MIN, HAS_MIN == 1u && v < MIN);
    return select(above, MAX, HAS_MAX == 1u && above > MAX);
}

