// ln(v + sqrt(v^2 - 1)), which is not a number below 1; the square of a large number is not taken.
fn formula(v: f32) -> f32 {
    if v >= 1e8 {
        return log_of_sum(v, v) + 0.69314718;
    }
    let t = v - 1.0;
    let root = sqrt(t * (v + 1.0));
    return log_of_sum(t + root, v + root);
}
