typedef struct ALIGN(8) { f32 x, y; } v2f;
typedef struct { u32 x, y, z; } v3u;
typedef struct { u32 n_; u32 p_; u32 s_; u32 reserved_; } Symbols_;
typedef struct { f32 v[256]; } f32_x256;
DEV f32 half_to_float(h16 x) { return HALF_TO_FLOAT(x); }
DEV h16 float_to_half(f32 x) { return FLOAT_TO_HALF(x); }
DEV u32 min_u(u32 a, u32 b) { return b < a ? b : a; }
DEV u32 div_u(u32 a, u32 b) { return b == 0u ? a : a / b; }
DEV u32 rem_u(u32 a, u32 b) { return b == 0u ? 0u : a % b; }
DEV v2f v2f_new(f32 x, f32 y) { v2f v; v.x = x; v.y = y; return v; }
DEV v2f unpack2x16float(u32 a) { return v2f_new(half_to_float((h16)(a >> 0u)), half_to_float((h16)(a >> 16u))); }
DEV v3u v3u_new(u32 x, u32 y, u32 z) { v3u v; v.x = x; v.y = y; v.z = z; return v; }
DEV u32 row_count_(const Symbols_ s_)
{
    return (((1u * s_.n_) + (0u * s_.p_)) + (0u * s_.s_)) + 0u;
}
DEV f32 round_to_half_(const f32 v_)
{
    const u32 bits_ = AS_U32(v_);
    const f32 rounded_ = AS_F32(((bits_ + 4095u) + ((bits_ >> (13u & 31u)) & 1u)) & 4294959104u);
    const f32 tiny_ = m_rint(v_ * 16777216.0f) * 5.9604645e-8f;
    const bool is_nan_ = (bits_ & 2147483647u) > 2139095040u;
    return is_nan_ ? v_ : ((m_abs(v_) < 6.1035156e-5f) ? tiny_ : rounded_);
}
DEV h16 to_act_(const f32 v_)
{
    const f32 e1 = round_to_half_(v_);
    return float_to_half(e1);
}
DEV u32 weight_word_(const u32 e_)
{
    return false ? e_ : (e_ >> (1u & 31u));
}
DEV f32 weight_value_(const u32 word_, const u32 e_)
{
    if (false) {
        return AS_F32(word_);
    }
    const u32 half_ = ((e_ & 1u) == 1u) ? (word_ >> (16u & 31u)) : word_;
    if (true) {
        return unpack2x16float(half_).x;
    }
    return AS_F32(half_ << (16u & 31u));
}
DEV f32 sum_of_(const u32 lane_, const f32 value_, LOCAL f32_x256* sums_)
{
    u32 step_ = 128u;
    sums_->v[min_u(lane_, 255u)] = value_;
    BARRIER_LOCAL();
    for (;;) {
        const u32 e9 = step_;
        if (!(e9 > 0u)) {
            break;
        }
        {
            const u32 e14 = step_;
            if (rem_u(lane_, 256u) < e14) {
                const f32 e18 = sums_->v[min_u(lane_, 255u)];
                const u32 e20 = step_;
                const f32 e23 = sums_->v[min_u(lane_ + e20, 255u)];
                sums_->v[min_u(lane_, 255u)] = e18 + e23;
            }
            BARRIER_LOCAL();
        }
        const u32 e25 = step_;
        step_ = e25 >> (1u & 31u);
    }
    const f32 total_ = sums_->v[min_u(div_u(lane_, 256u) * 256u, 255u)];
    BARRIER_LOCAL();
    return total_;
}
DEV f32 inverse_root_(const f32 v_)
{
    const f32 r_ = m_rsqrt(v_);
    return r_ * m_fma(((-0.5f) * v_) * r_, r_, 1.5f);
}
DEV f32 weight_(const u32 run_, const u32 j_, GLOBAL const u32* RESTRICT w_, const u32 w_bytes)
{
    if (false) {
        return 1.0f;
    }
    const u32 at_ = (rem_u(run_, 1u) * 96u) + j_;
    const u32 e14 = weight_word_(at_);
    const f32 e17 = weight_value_(w_[min_u(e14, (w_bytes / 4u) - 1u)], at_);
    return 0.0f + e17;
}
KERNEL(256, 1, 1) main_(GLOBAL const u8* RESTRICT x_base, const ulong x_at, const u32 x_bytes, GLOBAL const u8* RESTRICT w_base, const ulong w_at, const u32 w_bytes, GLOBAL u8* RESTRICT y_base, const ulong y_at, const u32 y_bytes, GLOBAL const u8* RESTRICT symbols_base, const ulong symbols_at)
{
    GLOBAL const h16* const x_ = (GLOBAL const h16*)(x_base + x_at);
    GLOBAL const u32* const w_ = (GLOBAL const u32*)(w_base + w_at);
    GLOBAL h16* const y_ = (GLOBAL h16*)(y_base + y_at);
    GLOBAL const Symbols_* const symbols_ = (GLOBAL const Symbols_*)(symbols_base + symbols_at);
    const v3u group_ = v3u_new(GROUP_ID(0), GROUP_ID(1), GROUP_ID(2));
    const u32 lane_ = LOCAL_INDEX();
    SHARED f32_x256 sums_mem;
    LOCAL f32_x256* const sums_ = &sums_mem;
    { const f32 zero = 0.0f; for (u32 i = LOCAL_INDEX(); i < 256u; i += 256u) sums_->v[i] = zero; }
    BARRIER_LOCAL();
    f32 squares_ = 0.0f;
    u32 j_ = 0u;
    u32 j_2 = 0u;
    const u32 run_ = (group_.x * 1u) + div_u(lane_, 256u);
    const u32 first_ = run_ * 96u;
    const u32 e17 = row_count_(*symbols_);
    const u32 end_ = (run_ < e17) ? 96u : 0u;
    j_ = rem_u(lane_, 256u);
    for (;;) {
        const u32 e25 = j_;
        if (!(e25 < end_)) {
            break;
        }
        {
            const u32 e28 = j_;
            const f32 v_ = half_to_float(x_[min_u(first_ + e28, (x_bytes / 2u) - 1u)]);
            const f32 e33 = squares_;
            squares_ = m_fma(v_, v_, e33);
        }
        const u32 e35 = j_;
        j_ = e35 + 256u;
    }
    const f32 e38 = squares_;
    const f32 e39 = sum_of_(lane_, e38, sums_);
    const f32 factor_ = inverse_root_((e39 / 96.0f) + 1e-5f);
    j_2 = rem_u(lane_, 256u);
    for (;;) {
        const u32 e50 = j_2;
        if (!(e50 < end_)) {
            break;
        }
        {
            const u32 e53 = j_2;
            const u32 e57 = j_2;
            const u32 e63 = j_2;
            const f32 e64 = weight_(run_, e63, w_, w_bytes);
            const h16 e66 = to_act_((half_to_float(x_[min_u(first_ + e57, (x_bytes / 2u) - 1u)]) * factor_) * e64);
            y_[min_u(first_ + e53, (y_bytes / 2u) - 1u)] = e66;
        }
        const u32 e67 = j_2;
        j_2 = e67 + 256u;
    }
    return;
}
