// Products of one row with whole numbers of 4 or 8 bits, in s32 and exact: see `prologue_digits.cuh`.
#include "load_int4.cuh"
#include "load_int8.cuh"
#include "prologue_digits.cuh"

template <class P, class S = typename P::Storage> struct GemvProduct;

// What products with digits share.
template <class P> struct DigitProduct {
    typedef GemvShape<P> H;
    typedef Digits<P> X;
    typedef typename P::Storage S;
    u32 x_at, g, t;
    // Columns 2c and 2c + 1 of b stand for lanes c's share of a row, with the two upper digits, then with the lower ones: other
    // lanes hold zeros.
    u32 mine, mine_too, x_upper, x_lower;
    Chunk xu[2], xl[2];
    float top, bottom; // outputs g and g + 8

    INLINE DigitProduct(u32 x_at, u32 g, u32 t) : x_at(x_at), g(g), t(t), xu{}, xl{} {
        const u32 odd = g & 1;
        mine = g >> 1 == t, mine_too = mine && (P::planes == 4 || !odd);
        const u32 share_of_x = S::bits == 4 ? 2 * t : t >> 1, piece_of_x = S::bits == 4 ? 0 : t & 1;
        x_upper = x_at + share_of_x * X::run + X::spot(share_of_x, P::planes - 1 - odd, piece_of_x);
        x_lower = x_at + share_of_x * X::run + X::spot(share_of_x, mine_too ? P::planes - 3 - odd : 0, piece_of_x);
    }
    INLINE void begin() { top = 0, bottom = 0; }
    // The sum that the digits of two products stand for.
    static INLINE float sum_of(int first, int second, int third, int fourth) {
        if (P::planes == 3) return fmaf((float)(first * 256 + second), 256.0f, (float)third);
        return fmaf((float)(first * 256 + second), 65536.0f, (float)(third * 256 + fourth));
    }
    // Adds the scaled sums of the two upper and the lower digits.
    INLINE void add(const int (&u)[4], const int (&l)[4], u32 run, float s_top, float s_bottom) {
        const float scale = __uint_as_float(read4(x_at + X::scales + run * 4));
        top += sum_of(u[0], u[1], l[0], l[1]) * (scale * s_top);
        bottom += sum_of(u[2], u[3], l[2], l[3]) * (scale * s_bottom);
    }
    // The sums of a warp's lanes.
    INLINE void end() {
        top += __shfl_xor_sync(~0u, top, 1);
        bottom += __shfl_xor_sync(~0u, bottom, 1);
        top += __shfl_xor_sync(~0u, top, 2);
        bottom += __shfl_xor_sync(~0u, bottom, 2);
    }
};

template <class P, u32 GROUP, bool ZEROS> struct GemvProduct<P, Int4<GROUP, ZEROS>> : DigitProduct<P> {
    typedef DigitProduct<P> D;
    typedef typename D::H H;
    typedef typename D::X X;
    typedef Int4<GROUP, ZEROS> S;
    using D::g, D::t, D::x_at, D::mine, D::mine_too, D::x_upper, D::x_lower, D::xu, D::xl;
    u32 mask;

    INLINE GemvProduct(u32 x_at, u32 g, u32 t) : D(x_at, g, t), mask(0xf0f0f0f0u + (gridDim.z - 1)) {} // There is one.
    // What zero points take away: each times the sums of a run's digits.
    INLINE void take_zeros(int (&u)[4], int (&l)[4], u32 run, int z_top, int z_bottom) const {
        const u32 lower_sums = read4(x_at + X::sums + run * 8), upper_sums = read4(x_at + X::sums + run * 8 + 4);
        auto low = [](u32 w) { return (int)(short)w; };
        auto high = [](u32 w) { return (int)w >> 16; };
        int s[4];
        if constexpr (P::planes == 3) s[0] = low(upper_sums), s[1] = high(lower_sums), s[2] = low(lower_sums), s[3] = 0;
        else s[0] = high(upper_sums), s[1] = low(upper_sums), s[2] = high(lower_sums), s[3] = low(lower_sums);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            (i < 2 ? u : l)[i & 1] = z_top * s[i];
            (i < 2 ? u : l)[(i & 1) + 2] = z_bottom * s[i];
        }
    }
    // Adds the stage that lies at `in`. A lane has runs 2t and 2t + 1 of rows g and g + 8.
    INLINE void multiply(u32 in, u32 stage) {
        const u32 few = in + 2048 + g * H::few + 2 * t * 32 / GROUP * 2;
        u32 s_top, s_bottom;
        if constexpr (GROUP == 32) s_top = read4(few), s_bottom = read4(few + 8 * H::few);
        else s_top = read2(few), s_bottom = read2(few + 8 * H::few);
        int z_top = 0, z_bottom = 0;
        if constexpr (ZEROS) {
            z_top = 128 - 16 * (int)from_half(read2(few + 16 * H::few));
            z_bottom = 128 - 16 * (int)from_half(read2(few + 24 * H::few));
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 x_from = (stage * 8 + half) * X::run, piece = (2 * t + half) ^ (g & 1);
            read_mine(xu[0], x_upper + x_from, mine);
            read_mine(xu[1], (x_upper ^ 16) + x_from, mine);
            read_mine(xl[0], x_lower + x_from, mine_too);
            read_mine(xl[1], (x_lower ^ 16) + x_from, mine_too);
            const u32 at = in + g * 128 + piece * 16;
            const Chunk a = read16(at), b = read16(at + 1024);
            const u32 aw[4] = {a.x, a.y, a.z, a.w}, bw[4] = {b.x, b.y, b.z, b.w};
            const u32 run = stage * 8 + 2 * t + half;
            int u[4] = {}, l[4] = {};
            if constexpr (ZEROS) take_zeros(u, l, run, z_top, z_bottom);
#pragma unroll
            for (int word = 0; word < 4; word++) {
                const u32 la = S::lower(aw[word], mask), lb = S::lower(bw[word], mask);
                const u32 ua = S::upper(aw[word], mask), ub = S::upper(bw[word], mask);
                const Chunk& xh = xu[word / 2];
                const Chunk& xk = xl[word / 2];
                mma_s8(u, la, lb, ua, ub, word & 1 ? xh.z : xh.x, word & 1 ? xh.w : xh.y);
                mma_s8(l, la, lb, ua, ub, word & 1 ? xk.z : xk.x, word & 1 ? xk.w : xk.y);
            }
            const bool upper = half && GROUP == 32;
            D::add(u, l, run, upper ? high(s_top) : low(s_top), upper ? high(s_bottom) : low(s_bottom));
        }
    }
};

template <class P> struct GemvProduct<P, Int8> : DigitProduct<P> {
    typedef DigitProduct<P> D;
    typedef typename D::H H;
    typedef typename D::X X;
    using D::g, D::t, D::mine, D::mine_too, D::x_upper, D::x_lower, D::xu, D::xl;

    INLINE GemvProduct(u32 x_at, u32 g, u32 t) : D(x_at, g, t) {}
    // A lane's piece is half a run.
    INLINE void multiply(u32 in, u32 stage) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 piece = (half * 4 + t) ^ ((g & 1) << H::turn), run = stage * 4 + half * 2 + (t >> 1);
            const Chunk a = read16(in + g * 128 + piece * 16), b = read16(in + 1024 + g * 128 + piece * 16);
            read_mine(xu[0], x_upper + (stage * 4 + half * 2) * X::run, mine);
            read_mine(xl[0], x_lower + (stage * 4 + half * 2) * X::run, mine_too);
            const u32 s_at = in + 2048 + g * 8 + (half * 2 + (t >> 1)) * 2;
            const float s_top = from_half(read2(s_at)), s_bottom = from_half(read2(s_at + 64));
            int u[4] = {}, l[4] = {};
            mma_s8(u, Int8::bytes(a.x), Int8::bytes(b.x), Int8::bytes(a.y), Int8::bytes(b.y), xu[0].x, xu[0].y);
            mma_s8(l, Int8::bytes(a.x), Int8::bytes(b.x), Int8::bytes(a.y), Int8::bytes(b.y), xl[0].x, xl[0].y);
            mma_s8(u, Int8::bytes(a.z), Int8::bytes(b.z), Int8::bytes(a.w), Int8::bytes(b.w), xu[0].z, xu[0].w);
            mma_s8(l, Int8::bytes(a.z), Int8::bytes(b.z), Int8::bytes(a.w), Int8::bytes(b.w), xl[0].z, xl[0].w);
            D::add(u, l, run, s_top, s_bottom);
        }
    }
};
