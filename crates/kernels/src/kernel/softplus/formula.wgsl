// ln(1 + exp(v)) as max(v, 0) + ln(1 + exp(-|v|)), which does not overflow.
fn formula(v: f32) -> f32 {
    return select(v, 0.0, v < 0.0) + log1p_accurate(exp_accurate(-abs(v)));
}

