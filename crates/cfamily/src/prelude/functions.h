DEV f32 half_to_float(h16 x) { return HALF_TO_FLOAT(x); }

DEV h16 float_to_half(f32 x) { return FLOAT_TO_HALF(x); }

DEV u32 min_u(u32 a, u32 b) { return b < a ? b : a; }

DEV u32 max_u(u32 a, u32 b) { return b > a ? b : a; }

DEV i32 min_i(i32 a, i32 b) { return b < a ? b : a; }

DEV i32 max_i(i32 a, i32 b) { return b > a ? b : a; }

DEV f32 min_f(f32 a, f32 b) { return b < a ? b : a; }

DEV f32 max_f(f32 a, f32 b) { return b > a ? b : a; }

DEV i32 div_i(i32 a, i32 b) { return b == 0 ? a : b == -1 ? (i32)(0u - (u32)a) : a / b; }

DEV i32 rem_i(i32 a, i32 b) { return b == 0 || b == -1 ? 0 : a % b; }

DEV u32 div_u(u32 a, u32 b) { return b == 0u ? a : a / b; }

DEV u32 rem_u(u32 a, u32 b) { return b == 0u ? 0u : a % b; }

DEV f32 rem_f(f32 a, f32 b) { return a - b * m_trunc(a / b); }

DEV i32 to_i(f32 x) { return x != x ? 0 : x < -2147483648.0f ? (-2147483647 - 1) : (i32)min_f(x, 2147483520.0f); }

DEV u32 to_u(f32 x) { return x > 0.0f ? (u32)min_f(x, 4294967040.0f) : 0u; }

DEV i32 abs_i(i32 x) { return x < 0 ? (i32)(0u - (u32)x) : x; }

DEV i32 sign_i(i32 x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

DEV f32 sign_f(f32 x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f; }

DEV f32 fract_f(f32 x) { return x - m_floor(x); }

DEV f32 step_f(f32 edge, f32 x) { return edge <= x ? 1.0f : 0.0f; }

DEV f32 mix_f(f32 x, f32 y, f32 t) { return x * (1.0f - t) + y * t; }

DEV f32 smooth_step_f(f32 low, f32 high, f32 x) {
    const f32 t = min_f(max_f((x - low) / (high - low), 0.0f), 1.0f);
    return t * t * (3.0f - 2.0f * t);
}

DEV f32 modf_fraction(f32 x) { return x - m_trunc(x); }

DEV i32 frexp_exponent(f32 x) {
    u32 bits = AS_U32(x) & 0x7fffffffu;
    i32 e = 0;
    if (bits == 0u || bits >= 0x7f800000u) return 0;
    // Of a subnormal number the highest bit is moved to where that of a normal one is implied.
    for (; bits < 0x00800000u; bits <<= 1u) e -= 1;
    return e + (e < 0 ? -125 : (i32)(bits >> 23u) - 126);
}

DEV f32 frexp_fraction(f32 x) {
    const u32 sign = AS_U32(x) & 0x80000000u;
    u32 bits = AS_U32(x) & 0x7fffffffu;
    if (bits == 0u || bits >= 0x7f800000u) return x;
    while (bits < 0x00800000u) bits <<= 1u;
    return AS_F32(sign | 0x3f000000u | (bits & 0x007fffffu));
}

DEV u32 count_trailing(u32 x) { return x == 0u ? 32u : 31u - CLZ(x & (0u - x)); }

DEV u32 first_trailing(u32 x) { return x == 0u ? 0xffffffffu : 31u - CLZ(x & (0u - x)); }

DEV i32 first_leading_i(i32 x) { return 31 - (i32)CLZ((u32)(x ^ (x >> 31))); }

DEV u32 extract_u(u32 x, u32 offset, u32 count) {
    const u32 o = min_u(offset, 32u);
    const u32 c = min_u(count, 32u - o);
    return c == 0u ? 0u : (x << (32u - c - o)) >> (32u - c);
}

DEV i32 extract_i(i32 x, u32 offset, u32 count) {
    const u32 o = min_u(offset, 32u);
    const u32 c = min_u(count, 32u - o);
    return c == 0u ? 0 : (i32)((u32)x << (32u - c - o)) >> (32u - c);
}

DEV u32 insert_bits(u32 x, u32 y, u32 offset, u32 count) {
    const u32 o = min_u(offset, 32u);
    const u32 c = min_u(count, 32u - o);
    if (c == 0u) return x;
    const u32 mask = (0xffffffffu >> (32u - c)) << o;
    return (x & ~mask) | ((y << o) & mask);
}

DEV i32 pack_norm(f32 x, f32 low, f32 scale) { return (i32)m_floor(0.5f + scale * min_f(max_f(x, low), 1.0f)); }

DEV i32 dot_i8(u32 a, u32 b) {
    i32 sum = 0;
    for (u32 k = 0u; k < 32u; k += 8u) sum += ((i32)(a << (24u - k)) >> 24) * ((i32)(b << (24u - k)) >> 24);
    return sum;
}

DEV u32 dot_u8(u32 a, u32 b) {
    u32 sum = 0u;
    for (u32 k = 0u; k < 32u; k += 8u) sum += ((a >> k) & 0xffu) * ((b >> k) & 0xffu);
    return sum;
}
