fn formula(v: f32) -> f32 {
    let a = abs(v);
    if a <= 0.5 {
        return arc_sine(v);
    }
    // Pi / 2 in two parts.
    let far = 1.5707964 - 2.0 * arc_sine(root_of_rest(a)) - 4.371139e-8;
    return select(far, -far, v < 0.0);
}
