// Functions that WGSL leaves loose: its exp may be off by 3 + 2|x| units in the last place and its tanh may overflow.

// e^x within two units in the last place. x = k ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial (minimax fit of
// (e^r - 1 - r) / r^2, error 3e-9); 2^k in two factors, so that results below the smallest normal number fade out.
fn exp_accurate(v: f32) -> f32 {
    let x = select(select(v, -150.0, v < -150.0), 150.0, v > 150.0);
    let k = round(x * 1.442695);
    // The upper part of ln 2 has 14 bits, so that its product with k is exact.
    let r = fma(k, 2.9088971e-5, fma(k, -0.69317627, x));
    let r2 = r * r;
    let high = fma(r, fma(r, 0.0013950556, 0.008368958), 0.041666206);
    let q = fma(r, fma(r, high, 0.16666518), 0.5);
    let p = 1.0 + fma(r2, q, r);
    let whole = i32(k);
    let half = whole / 2;
    let scale = bitcast<f32>(u32(half + 127) << 23u);
    return p * scale * bitcast<f32>(u32(whole - half + 127) << 23u);
}

// tanh x: odd polynomial (minimax fit, error 2e-10) below 0.625, by the exponential above.
fn tanh_accurate(x: f32) -> f32 {
    let a = abs(x);
    let near = select(0.0, x, a < 0.625);
    let z = near * near;
    let high = fma(z, fma(z, 0.0021471371, -0.0081822444), 0.021702796);
    let q = fma(z, fma(z, fma(z, high, -0.053947173), 0.13333209), -0.33333331);
    let small = fma(near * z, q, near);
    let large = 1.0 - 2.0 / (exp_accurate(2.0 * select(a, 20.0, a > 20.0)) + 1.0);
    return select(select(large, -large, x < 0.0), small, a < 0.625);
}

// ln(1 + e) for 0 <= e <= 1: twice the inverse hyperbolic tangent of s = e / (2 + e) <= 1/3, by an odd polynomial
// (minimax fit, error 4e-10).
fn log1p_accurate(e: f32) -> f32 {
    let s = e / (2.0 + e);
    let z = s * s;
    let high = fma(z, fma(z, 0.1161678228, 0.1085226598), 0.1429624956);
    let q = fma(z, fma(z, high, 0.1999985161), 0.3333333367);
    return 2.0 * fma(s * z, q, s);
}

// ln v for normal v >= 1: v = 2^k (1 + e) with 0 <= e < 1.
fn ln_accurate(v: f32) -> f32 {
    let bits = bitcast<u32>(v);
    let e = bitcast<f32>((bits & 0x7fffffu) | 0x3f800000u) - 1.0;
    return fma(f32(bits >> 23u) - 127.0, 0.69314718, log1p_accurate(e));
}

