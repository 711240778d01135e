// The input of a product with whole numbers: of each run of 32 elements of x as many lower digits of the base 256 as PLANES says,
// from the greatest one's power of two on, with a scale, and beside zero points with their sums. Products and sums of 32 are exact.
#include "schedule_gemv.cuh"

template <class P> struct Digits {
    typedef GemvShape<P> H;
    typedef typename P::Storage S;
    static constexpr u32 each = H::stages * H::step / 32;  // runs of a row of x, zeros behind it
    static constexpr u32 groups = H::rows * each, run = P::planes * 32; // bytes of one
    static constexpr u32 scales = groups * run, sums = scales + groups * 4, held = sums + S::zeros * groups * 8;
    static constexpr u32 eights = P::k / 8;
    static constexpr bool takes_scale = false;
    // Bits of the numbers that x becomes, without the sign: the highest digit has room for what the lower ones carry.
    static constexpr u32 bits = P::planes == 4 ? 30 : 23;

    // x times `up`, as balanced digits: byte i of the result is digit i, from -128 to 127, plus 128 but for the highest.
    static INLINE u32 digits(float x, float up) {
        if (P::planes == 4) return (u32)__float2int_rn(x * up) + 0x00808080u;
        // 2^23 plus the magnitude: its lower bits are the whole number, without the conversion's few lanes.
        const u32 magnitude = __float_as_uint(fmaf(fabsf(x), up, 8388608.0f)), sign = (u32)((int)__float_as_uint(x) >> 31);
        return ((magnitude & 0x7fffffu) ^ sign) - sign + 0x00008080u;
    }
    // Where the 16 bytes `piece` of a plane lie in a run: so that four runs, two planes of each, are read from all banks.
    static INLINE u32 spot(u32 run, u32 plane, u32 piece) {
        const u32 turn = S::bits == 8 ? 0 : (run >> 2 & 1) | (P::planes == 4 ? (run >> 1 & 1) << 2 : 0);
        return ((plane * 2 + piece) ^ turn) << 4;
    }
    // Bytes of four numbers by their place, of each plane.
    static INLINE void planes_of(u32 (&to)[4], u32 a, u32 b, u32 c, u32 e) {
        const u32 ab = __byte_perm(a, b, 0x5140), ce = __byte_perm(c, e, 0x5140);
        to[0] = __byte_perm(ab, ce, 0x5410);
        to[1] = __byte_perm(ab, ce, 0x7632);
        const u32 ab2 = __byte_perm(a, b, 0x7362), ce2 = __byte_perm(c, e, 0x7362);
        to[2] = __byte_perm(ab2, ce2, 0x5410);
        to[3] = __byte_perm(ab2, ce2, 0x7632);
#pragma unroll
        for (u32 plane = 0; plane < P::planes - 1; plane++) to[plane] ^= 0x80808080u;
    }
    // Stores eight elements, if they are `in` the rows of x; four neighbours hold a run.
    static INLINE void store(char* xs, u32 at, bool in, const float (&v)[8]) {
        // The greatest power of two of a run; what is not finite makes all that it meets so.
        u32 peak = 0;
#pragma unroll
        for (int j = 0; j < 8; j++) peak = max(peak, __float_as_uint(v[j]) & 0x7fffffffu);
        peak = max(peak, __shfl_xor_sync(~0u, peak, 1));
        peak = max(peak, __shfl_xor_sync(~0u, peak, 2));
        // Of three digits the highest is full: 126 / 128 of the next power count as that.
        const u32 power = max((peak + (P::planes == 3 ? 0x20000u : 0)) >> 23, 40u);
        const float up = power >= 255 ? 0 : __uint_as_float((253 + bits - power) << 23);
        const float down = power >= 255 ? __uint_as_float(0x7fc00000u) : __uint_as_float((power + 1 - bits - S::times) << 23);
        u32 d[8];
#pragma unroll
        for (int j = 0; j < 8; j++) d[j] = digits(v[j], up);
        const u32 place = H::rows == 1 ? at >> 2 : at / eights * each + (at % eights >> 2);
        u32 ends[2][4];
        if constexpr (S::bits == 4) {
            planes_of(ends[0], d[0], d[2], d[4], d[6]);
            planes_of(ends[1], d[1], d[3], d[5], d[7]);
        } else {
            planes_of(ends[0], d[0], d[1], d[2], d[3]);
            planes_of(ends[1], d[4], d[5], d[6], d[7]);
        }
#pragma unroll
        for (u32 plane = 0; plane < P::planes; plane++) {
            u32* to = (u32*)(xs + place * run + spot(place, plane, at >> 1 & 1) + (at & 1) * 8);
            if (in) to[0] = ends[0][plane], to[1] = ends[1][plane];
        }
        if (in && (at & 3) == 0) ((float*)(xs + scales))[place] = down;
        if constexpr (S::zeros) store_sums(xs, at, in, ends, place);
    }
    // The sums of each plane of a run.
    static INLINE void store_sums(char* xs, u32 at, bool in, const u32 (&ends)[2][4], u32 place) {
        u32 sum_of_plane[2] = {};
#pragma unroll
        for (int plane = 0; plane < (int)P::planes; plane++) {
            int sum = __dp4a((int)ends[0][plane], 0x01010101, __dp4a((int)ends[1][plane], 0x01010101, 0));
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            sum_of_plane[plane / 2] |= ((u32)sum & 0xffffu) << plane % 2 * 16;
        }
        if (in && (at & 3) == 0) {
            u32* to = (u32*)(xs + sums) + place * 2;
            to[0] = sum_of_plane[0], to[1] = sum_of_plane[1];
        }
    }
    // What lies behind the rows, of no account, but numbers: runs, and their scales and sums.
    static INLINE void store_tail(char* xs) {
        constexpr u32 EMPTY = each - P::k / 32, BEHIND = EMPTY * run / 16;
        for (u32 i = threadIdx.x; i < H::rows * BEHIND; i += H::threads) {
            ((Chunk*)(xs + (i / BEHIND * each + P::k / 32) * run))[i % BEHIND] = {};
        }
        for (u32 i = threadIdx.x; i < H::rows * EMPTY; i += H::threads) {
            ((float*)(xs + scales))[i / EMPTY * each + P::k / 32 + i % EMPTY] = 0;
        }
    }
};
