// Weights of 4 bits in groups with f16 scales, with zero points of their own or 8 for all: as signed bytes, or as f16.
#include "mma.cuh"
#include "operands.cuh"

namespace {
template <u32 GROUP, bool ZEROS> struct Int4 {
    static constexpr u32 bits = 4, arrays = 2 + ZEROS, group = GROUP;
    static constexpr bool packed = true, zeros = ZEROS;
    // The power of two that the signed bytes are too large by.
    static constexpr u32 times = 4;
    static constexpr float scale = 1;
    // Signed bytes 16 (q - 8) of the lower and of the upper halves of a word's bytes. The mask comes in a register: the
    // compiler would move it there before every use.
    static INLINE u32 lower(u32 w, u32 mask) { return ((w << 4) & mask) ^ 0x80808080u; }
    static INLINE u32 upper(u32 w, u32 mask) { return (w & mask) ^ 0x80808080u; }
    // Which byte of a word a lane takes for `pair`.
    static INLINE u32 byte_of(u32 t) { return 0x4040 | t << 8 | t; }
    // 1 and 1/16, as something that the compiler does not know and so keeps in a register: the grid is flat.
    static INLINE u32 factors() { return 0x2c003c00 * gridDim.z; }
    // Elements 2t and 2t + 1 of a word's 8, less 8, as f16: by way of 1024 + q and 1024 + 16 q. All of this is exact.
    static INLINE u32 pair(u32 word, u32 byte_t, u32 factors) {
        const u32 both = __byte_perm(word, 0, byte_t);
        u32 r;
        asm("{.reg .b32 v;\n\tlop3.b32 v, %1, 0x00f0000f, 0x64006400, 0xea;\n\t"
            "fma.rn.f16x2 %0, v, %2, %3;}" : "=r"(r) : "r"(both), "r"(factors), "r"(0xd480e408));
        return r;
    }
    // Rows g and g + 8 of 32 elements, for two products of 16. `at` and `at8` are their places in shared memory.
    static INLINE void read(u32 (&raw)[8], u32 at, u32 at8, u32) {
        read_chunk(*(u32(*)[4])raw, at);
        read_chunk(*(u32(*)[4])(raw + 4), at8);
    }
    // What was read, as f16.
    static INLINE void unpack(u32 (&a)[8], const u32 (&raw)[8], u32 t, u32 factors) {
        const u32 byte_t = byte_of(t);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[2 * i] = pair(raw[i], byte_t, factors);
            a[2 * i + 1] = pair(raw[4 + i], byte_t, factors);
        }
    }
};
template <u32 GROUP, bool ZEROS> struct StorageOf<4, GROUP, ZEROS> { typedef Int4<GROUP, ZEROS> type; };
}
