// ln(1 + e) for e >= 0, given e and 1 + e, which may be beyond the numbers of f32.
fn log_of_sum(e: f32, sum: f32) -> f32 {
    // The built-in function keeps what is infinite or no number.
    if !(sum >= 1.0 && sum <= 0x1.fffffep+127f) {
        return log(sum);
    }
    if e <= 1.0 {
        return log1p_accurate(e);
    }
    return ln_accurate(sum);
}

