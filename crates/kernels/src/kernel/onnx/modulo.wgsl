// What is left of a divided by b, with the sign of b, or that of a if FMOD. The division leaves off bit by bit, so that nothing
// is rounded: WGSL's own remainder is off where the quotient is large.
override FMOD: u32;

// 2^k within the range of normal numbers.
fn power_of_two(k: i32) -> f32 {
    return bitcast<f32>(u32(k + 127) << 23u);
}

// |a| modulo |b|, of finite numbers, b not 0.
fn rest_of(a: f32, b: f32) -> f32 {
    let dividend = bitcast<u32>(a) & 0x7fffffffu;
    let divisor = bitcast<u32>(b) & 0x7fffffffu;
    if dividend < divisor {
        return abs(a);
    }
    let least = max(divisor >> 23u, 1u);
    let by = (divisor & 0x7fffffu) | select(0u, 0x800000u, divisor >= 0x800000u);
    var rest = (dividend & 0x7fffffu) | select(0u, 0x800000u, dividend >= 0x800000u);
    rest %= by;
    for (var e = max(dividend >> 23u, 1u); e > least; e--) {
        rest = (rest << 1u) % by;
    }
    // rest 2^(least - 150), in two factors.
    let half = (i32(least) - 150) / 2;
    return f32(rest) * power_of_two(half) * power_of_two(i32(least) - 150 - half);
}

fn formula(a: f32, b: f32) -> f32 {
    let size_a = bitcast<u32>(a) & 0x7fffffffu;
    let size_b = bitcast<u32>(b) & 0x7fffffffu;
    if size_a >= 0x7f800000u || size_b > 0x7f800000u || size_b == 0u {
        return bitcast<f32>(size_a | size_b | 0x7fc00000u);
    }
    var rest = abs(a);
    if size_b < 0x7f800000u {
        rest = rest_of(a, b);
    }
    rest = select(rest, -rest, a < 0.0);
    if FMOD == 0u {
        if rest == 0.0 {
            return select(0.0, -0.0, b < 0.0);
        }
        rest = select(rest, rest + b, (rest < 0.0) != (b < 0.0));
    }
    return rest;
}
