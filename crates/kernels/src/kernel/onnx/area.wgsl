// ln(1 + e) for e >= 0, given e and 1 + e, which may be beyond the numbers of f32.
fn log_of_sum(e: f32, sum: f32) -> f32 {
    // Told by its bits, as compilers of WGSL may take it that nothing is infinite or no number. What is negative has no logarithm.
    let bits = bitcast<u32>(sum);
    if bits >= 0x7f800000u {
        return bitcast<f32>(select(bits | 0x7fc00000u, bits, bits == 0x7f800000u));
    }
    if sum < 1.0 {
        return log(sum);
    }
    if e <= 1.0 {
        return log1p_accurate(e);
    }
    return ln_accurate(sum);
}

