// Weights of 8 bits in groups of 32 with f16 scales, q - 128: as signed bytes, or as f16.
#include "mma.cuh"
#include "operands.cuh"

namespace {
// Elements 2t and 2t + 1 of 8 of rows g and g + 8 of 32 elements, for two products of 16. Rows are swizzled by 16 bytes.
INLINE void read_bytes(u32 (&raw)[8], u32 at, u32 at8, u32 t) {
    auto read = [](u32& to, u32 from) { asm volatile("ld.shared.u16 %0, [%1];" : "=r"(to) : "r"(from) : "memory"); };
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        read(raw[2 * i], (at ^ (i / 2 * 16)) + i % 2 * 8 + 2 * t);
        read(raw[2 * i + 1], (at8 ^ (i / 2 * 16)) + i % 2 * 8 + 2 * t);
    }
}
// What was read, as CODE makes f16 of it.
template <class CODE> INLINE void unpack_bytes(u32 (&a)[8], const u32 (&raw)[8]) {
#pragma unroll
    for (u32 i = 0; i < 8; i++) a[i] = CODE::pair(raw[i]);
}

struct Int8 {
    static constexpr u32 bits = 8, arrays = 2, group = 32, times = 0;
    static constexpr bool packed = true, zeros = false;
    static constexpr float scale = 1;
    static INLINE u32 bytes(u32 w) { return w ^ 0x80808080u; }
    static INLINE u32 factors() { return 0; }
    // By way of 1024 + q, exactly.
    static INLINE u32 pair(u32 both) {
        u32 r;
        asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(__byte_perm(both, 0x64646464, 0x4140)), "r"(0xe480e480));
        return r;
    }
    static INLINE void read(u32 (&raw)[8], u32 at, u32 at8, u32 t) { read_bytes(raw, at, at8, t); }
    static INLINE void unpack(u32 (&a)[8], const u32 (&raw)[8], u32, u32) { unpack_bytes<Int8>(a, raw); }
};
template <u32 GROUP> struct StorageOf<8, GROUP, false> { typedef Int8 type; };
}
