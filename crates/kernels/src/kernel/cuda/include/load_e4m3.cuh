// Weights in FP8 E4M3 in groups of 32 with f16 scales: as f16. There they have one more bit of exponent, and come 256 times as
// large: tensor cores lose what is subnormal.
#include "load_int8.cuh"

namespace {
struct E4M3 {
    static constexpr u32 bits = 8, arrays = 2, group = 32;
    static constexpr bool packed = true, zeros = false;
    static constexpr float scale = 1.0f / 256;
    static INLINE u32 factors() { return 0; }
    // The two numbers whose codes are the upper bytes of halves.
    static INLINE u32 widened(u32 both) {
        u32 r;
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"((both & 0x80008000u) | (both >> 1 & 0x3f803f80u)), "r"(0x5c005c00));
        return r;
    }
    // Two numbers of a word, by the places that they go to.
    static INLINE u32 pair_of(u32 word, u32 places) { return widened(__byte_perm(word, 0, places)); }
    static INLINE u32 pair(u32 both) { return pair_of(both, 0x1404); }
    static INLINE void read(u32 (&raw)[8], u32 at, u32 at8, u32 t) { read_bytes(raw, at, at8, t); }
    static INLINE void unpack(u32 (&a)[8], const u32 (&raw)[8], u32, u32) { unpack_bytes<E4M3>(a, raw); }
};
template <u32 GROUP> struct StorageOf<9, GROUP, false> { typedef E4M3 type; };
}
