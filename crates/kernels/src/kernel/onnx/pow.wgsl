// a^b. Powers of whole exponents up to 4 are products; others go by the logarithm, whose whole part stays exact.
fn formula(a: f32, b: f32) -> f32 {
    if b == 2.0 {
        return a * a;
    }
    if b == 0.5 && a >= 0.0 {
        return sqrt(a);
    }
    if b == 1.0 {
        return a;
    }
    if b == 3.0 {
        return a * a * a;
    }
    if b == 4.0 {
        return (a * a) * (a * a);
    }
    let whole = trunc(b) == b;
    let odd = whole && abs(b) < 16777216.0 && (i32(b) & 1) != 0;
    let m = abs(a);
    let bits = bitcast<u32>(m);
    // Told by their bits: compilers of WGSL may take it that nothing is infinite or no number.
    let is_normal = bits - 0x800000u < 0x7f000000u && (bitcast<u32>(b) & 0x7fffffffu) < 0x7f800000u;
    if !is_normal || (a < 0.0 && !whole) {
        return pow(a, b);
    }
    let over = u32((bits & 0x7fffffu) > 0x3504f3u);
    let f = bitcast<f32>((bits & 0x7fffffu) | ((127u - over) << 23u));
    let k = f32(i32(bits >> 23u) + i32(over) - 127);
    let s = (f - 1.0) / (f + 1.0);
    let z = s * s;
    let series = fma(z, fma(z, fma(z, fma(z, 0.11111111, 0.14285715), 0.2), 0.33333334), 1.0);
    // a^b = 2^(b k) e^(b ln f), both parts of the exponent added where they are small.
    let turns = b * k;
    let near = round(turns);
    let rest = fma(turns - near, 0.69314718, b * 2.0 * s * series);
    let reach = clamp(near, -300.0, 300.0);
    let half = trunc(reach * 0.5);
    let other = reach - half;
    let v = exp_accurate(rest) * exp2(half) * exp2(other);
    return select(v, -v, odd && a < 0.0);
}
