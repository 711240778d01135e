// ln((1 + |v|) / (1 - |v|)) / 2 with the sign of v: infinite at 1, and not a number beyond.
fn formula(v: f32) -> f32 {
    let a = abs(v);
    let found = 0.5 * log_of_sum(2.0 * a / (1.0 - a), (1.0 + a) / (1.0 - a));
    return select(found, -found, v < 0.0);
}
