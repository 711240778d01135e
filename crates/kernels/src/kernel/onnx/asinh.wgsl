// ln(|v| + sqrt(v^2 + 1)) with the sign of v; the square of a large number is not taken.
fn formula(v: f32) -> f32 {
    let a = abs(v);
    var found = 0.0;
    if a < 1e8 {
        let root = sqrt(fma(a, a, 1.0));
        found = log_of_sum(a + a * (a / (1.0 + root)), a + root);
    } else {
        found = log_of_sum(a, a) + 0.69314718;
    }
    return select(found, -found, v < 0.0);
}
