// ln v. v = 2^k f with f within sqrt(1/2) and sqrt(2); ln f = 2 artanh((f - 1) / (f + 1)) by its series, error 2e-10.
fn formula(v: f32) -> f32 {
    let bits = bitcast<u32>(v);
    // What is not normal and positive is told by its bits: compilers of WGSL may take it that nothing is infinite or no number.
    if bits - 0x800000u >= 0x7f000000u {
        if (bits & 0x7fffffffu) == 0u {
            return bitcast<f32>(bits | 0xff800000u);
        }
        if bits > 0x7f800000u {
            return bitcast<f32>(bits | 0x7fc00000u);
        }
        return select(log(v), v, bits == 0x7f800000u);
    }
    let over = u32((bits & 0x7fffffu) > 0x3504f3u);
    let f = bitcast<f32>((bits & 0x7fffffu) | ((127u - over) << 23u));
    let k = f32(i32(bits >> 23u) + i32(over) - 127);
    let s = (f - 1.0) / (f + 1.0);
    let z = s * s;
    let series = fma(z, fma(z, fma(z, fma(z, 0.11111111, 0.14285715), 0.2), 0.33333334), 1.0);
    return fma(k, 0.69314718, 2.0 * s * series);
}
