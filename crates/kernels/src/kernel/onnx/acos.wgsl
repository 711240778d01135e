fn formula(v: f32) -> f32 {
    if abs(v) <= 0.5 {
        // Pi / 2 and pi in two parts.
        return 1.5707964 - arc_sine(v) - 4.371139e-8;
    }
    let twice = 2.0 * arc_sine(root_of_rest(abs(v)));
    return select(twice, 3.1415927 - twice - 8.742278e-8, v < 0.0);
}
