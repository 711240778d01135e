// Weights in f16: tensor cores take them as they are.
#include "mma.cuh"
#include "operands.cuh"

namespace {
struct F16 {
    static constexpr u32 bits = 16, arrays = 1, group = 1;
    static constexpr bool packed = false, zeros = false;
    // What the second plane of f32 activations is divided by.
    static constexpr float second = 1.0f / 2048;
    static INLINE void mma(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) { mma_f16(c, a0, a1, a2, a3, b0, b1); }
};
template <u32 GROUP> struct StorageOf<1, GROUP, false> { typedef F16 type; };
}
