typedef struct ALIGN(8) { f32 x, y; } v2f;
typedef struct { f32 x, y, z; } v3f;
typedef struct { u32 x, y, z; } v3u;
typedef struct ALIGN(16) { f32 x, y, z, w; } v4f;
typedef struct ALIGN(8) { h16 x, y, z, w; } v4h;
typedef struct { struct { v3f v; u8 pad[4]; } c[3]; } m3x3f;
typedef struct { v3f left_; f32 right_; } Pair_;
typedef struct { u32 count_; } Table_;
typedef struct { f32 v[64]; } f32_x64;
typedef struct { u32 v[3]; } u32_x3;
DEV f32 half_to_float(h16 x) { return HALF_TO_FLOAT(x); }
DEV h16 float_to_half(f32 x) { return FLOAT_TO_HALF(x); }
DEV u32 min_u(u32 a, u32 b) { return b < a ? b : a; }
DEV f32 min_f(f32 a, f32 b) { return b < a ? b : a; }
DEV f32 max_f(f32 a, f32 b) { return b > a ? b : a; }
DEV u32 div_u(u32 a, u32 b) { return b == 0u ? a : a / b; }
DEV u32 rem_u(u32 a, u32 b) { return b == 0u ? 0u : a % b; }
DEV i32 pack_norm(f32 x, f32 low, f32 scale) { return (i32)m_floor(0.5f + scale * min_f(max_f(x, low), 1.0f)); }
DEV v3u v3u_new(u32 x, u32 y, u32 z) { v3u v; v.x = x; v.y = y; v.z = z; return v; }
DEV v3f v3f_new(f32 x, f32 y, f32 z) { v3f v; v.x = x; v.y = y; v.z = z; return v; }
DEV f32 dot_v3f(v3f a, v3f b) { return (((a.x * b.x) + (a.y * b.y)) + (a.z * b.z)); }
DEV v3f times_m3x3f_v3f(m3x3f a, v3f b) { return v3f_new(dot_v3f(v3f_new(a.c[0].v.x, a.c[1].v.x, a.c[2].v.x), b), dot_v3f(v3f_new(a.c[0].v.y, a.c[1].v.y, a.c[2].v.y), b), dot_v3f(v3f_new(a.c[0].v.z, a.c[1].v.z, a.c[2].v.z), b)); }
DEV f32 v3f_at(const v3f v, u32 i) { return i == 0u ? v.x : i == 1u ? v.y : v.z; }
DEV v2f v2f_new(f32 x, f32 y) { v2f v; v.x = x; v.y = y; return v; }
DEV u32 pack2x16float(v2f a) { return (u32)float_to_half(a.x) | ((u32)float_to_half(a.y) << 16u); }
DEV v4f v4f_new(f32 x, f32 y, f32 z, f32 w) { v4f v; v.x = x; v.y = y; v.z = z; v.w = w; return v; }
DEV u32 pack4x8snorm(v4f a) { return ((u32)pack_norm(a.x, -1.0f, 127.0f) & 0xffu) | (((u32)pack_norm(a.y, -1.0f, 127.0f) & 0xffu) << 8u) | (((u32)pack_norm(a.z, -1.0f, 127.0f) & 0xffu) << 16u) | (((u32)pack_norm(a.w, -1.0f, 127.0f) & 0xffu) << 24u); }
DEV f32 subgroup_add_f(f32 own) {
    const lanes active = ACTIVE();
    if (active == ALL_LANES) {
        f32 sum = own;
        for (u32 step = LANES / 2u; step > 0u; step >>= 1u) {
            const f32 other = AS_F32(SHUFFLE(active, AS_U32(sum), LANE() ^ step));
            sum = (sum + other);
        }
        return sum;
    }
    f32 sum = 0.0f;
    for (u32 lane = 0u; lane < LANES; ++lane) {
        if (((active >> lane) & 1u) == 0u) continue;
        const f32 other = AS_F32(SHUFFLE(active, AS_U32(own), lane));
        if (true) sum = (sum + other);
    }
    return sum;
}
DEV u32 first_lane(lanes active) {
    u32 lane = 0u;
    while (lane < LANES - 1u && ((active >> lane) & 1u) == 0u) ++lane;
    return lane;
}
DEV u32 subgroup_gather(u32 own, u32 from) {
    const lanes active = ACTIVE();
    const u32 other = SHUFFLE(active, own, from & (LANES - 1u));
    return from < LANES && ((active >> (from & (LANES - 1u))) & 1u) != 0u ? other : own;
}
DEV v4h v4h_new(h16 x, h16 y, h16 z, h16 w) { v4h v; v.x = x; v.y = y; v.z = z; v.w = w; return v; }
DEV v4h multiply_v4h_h(v4h a, h16 b) { return v4h_new(float_to_half((half_to_float(a.x) * half_to_float(b))), float_to_half((half_to_float(a.y) * half_to_float(b))), float_to_half((half_to_float(a.z) * half_to_float(b))), float_to_half((half_to_float(a.w) * half_to_float(b)))); }
DEV v4f v4f_splat(f32 x) { return v4f_new(x, x, x, x); }
DEV v4h to_h_v4f(v4f a) { return v4h_new(float_to_half(a.x), float_to_half(a.y), float_to_half(a.z), float_to_half(a.w)); }
DEV v4h add_v4h_v4h(v4h a, v4h b) { return v4h_new(float_to_half((half_to_float(a.x) + half_to_float(b.x))), float_to_half((half_to_float(a.y) + half_to_float(b.y))), float_to_half((half_to_float(a.z) + half_to_float(b.z))), float_to_half((half_to_float(a.w) + half_to_float(b.w)))); }
DEV f32 mixed_(f32* p_, const f32 by_, u32* seed_)
{
    const u32 e4 = *seed_;
    (*seed_) = (e4 * 1664525u) + 1013904223u;
    const f32 e9 = *p_;
    (*p_) = e9 + by_;
    const f32 e11 = *p_;
    const u32 e13 = *seed_;
    return e11 * ((f32)(e13 >> (16u & 31u)));
}
KERNEL(64, 1, 1) main_(GLOBAL Table_* RESTRICT table_, const u32 table_bytes, GLOBAL v4h* RESTRICT halves_, const u32 halves_bytes, GLOBAL const m3x3f* RESTRICT turn_)
{
    const u32 lane_ = LOCAL_INDEX();
    const v3u group_ = v3u_new(GROUP_ID(0), GROUP_ID(1), GROUP_ID(2));
    SHARED f32_x64 tile_mem;
    LOCAL f32_x64* const tile_ = &tile_mem;
    u32 seed_mem = 7u;
    u32* const seed_ = &seed_mem;
    { const f32 zero = 0.0f; for (u32 i = LOCAL_INDEX(); i < 64u; i += 64u) tile_->v[i] = zero; }
    BARRIER_LOCAL();
    f32 own_ = 0.0f;
    u32 i_ = 0u;
    u32_x3 words_ = {0};
    const f32 e6 = ((GLOBAL Pair_*)((GLOBAL u8*)table_ + 16))[min_u(lane_, ((table_bytes - 16u) / 16u) - 1u)].right_;
    own_ = e6;
    const v3f e14 = ((GLOBAL Pair_*)((GLOBAL u8*)table_ + 16))[min_u(lane_, ((table_bytes - 16u) / 16u) - 1u)].left_;
    const v3f turned_ = times_m3x3f_v3f((*turn_), e14);
    bool t1 = false;
    for (;;) {
        if (t1) {
            const u32 e32 = i_;
            i_ = e32 + 1u;
        }
        t1 = true;
        const u32 e18 = i_;
        if (!(e18 < 4u)) {
            break;
        }
        {
            const u32 e21 = i_;
            if (e21 == 2u) {
                continue;
            }
            const f32 e24 = own_;
            const u32 e25 = i_;
            const f32 e29 = mixed_(&own_, v3f_at(turned_, rem_u(e25, 3u)), seed_);
            own_ = e24 + e29;
        }
    }
    const f32 e36 = own_;
    tile_->v[min_u(lane_, 63u)] = e36;
    BARRIER_LOCAL();
    const f32 e39 = own_;
    const u32_x3 e43 = {{pack2x16float(v2f_new(turned_.x, turned_.y)), pack4x8snorm(v4f_new(turned_.x, turned_.y, turned_.z, e39)), POPCOUNT(lane_)}};
    words_ = e43;
    switch (rem_u(lane_, 4u)) {
    case 0u: {
        words_.v[min_u(rem_u(lane_, 3u), 2u)] = 1u;
        break;
    }
    case 1u:
    case 2u: {
        const u32 e52 = words_.v[1u];
        words_.v[1u] = div_u(e52, lane_);
        break;
    }
    default: {
        break;
    }
    }
    const f32 e54 = own_;
    const f32 e55 = subgroup_add_f(e54);
    const f32 e56 = own_;
    const u32 t2 = LANE() ^ (u32)1u;
    const f32 e58 = AS_F32(subgroup_gather(AS_U32(e56), t2));
    const f32 total_ = e55 + e58;
    const u32 e63 = words_.v[0u];
    const u32 e65 = words_.v[1u];
    const u32 e68 = words_.v[2u];
    const u32 e70 = ATOMIC_ADD(&table_->count_, (e63 + e65) + e68);
    if (e70 == 0u) {
        const Pair_ e81 = {turned_, total_};
        ((GLOBAL Pair_*)((GLOBAL u8*)table_ + 16))[min_u(((table_bytes - 16u) / 16u) - 1u, ((table_bytes - 16u) / 16u) - 1u)] = e81;
    }
    const v4h e86 = halves_[min_u(lane_, (halves_bytes / 8u) - 1u)];
    const f32 e89 = own_;
    halves_[min_u(lane_, (halves_bytes / 8u) - 1u)] = add_v4h_v4h(multiply_v4h_h(e86, (h16)0x4000u), to_h_v4f(v4f_splat(e89)));
    return;
}
