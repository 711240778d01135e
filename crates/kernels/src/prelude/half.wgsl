// The nearest number that binary16 holds, ties to even: what a conversion rounds to is left open by WGSL, and is exact
// after this. Below 2^-14 the numbers of binary16 are 2^-24 apart.
fn round_to_half(v: f32) -> f32 {
    let bits = bitcast<u32>(v);
    let rounded = bitcast<f32>((bits + 0xfffu + ((bits >> 13u) & 1u)) & 0xffffe000u);
    let tiny = round(v * 16777216.0) * 5.9604644775390625e-8;
    // The carry would make 0 of a NaN whose bits are all ones, as NVIDIA's are.
    let is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return select(select(rounded, tiny, abs(v) < 6.103515625e-5), v, is_nan);
}

