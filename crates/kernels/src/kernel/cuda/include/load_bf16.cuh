// Weights in bf16: tensor cores take them as they are.
#include "mma.cuh"
#include "operands.cuh"

namespace {
struct BF16 {
    static constexpr u32 bits = 16, arrays = 1, group = 1;
    static constexpr bool packed = false, zeros = false;
    static constexpr float second = 1;
    static INLINE void mma(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) { mma_bf16(c, a0, a1, a2, a3, b0, b1); }
};
template <u32 GROUP> struct StorageOf<2, GROUP, false> { typedef BF16 type; };
}
