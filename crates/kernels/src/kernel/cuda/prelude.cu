// What the CUDA kernels share.
typedef unsigned int u32;
typedef unsigned short u16;
typedef long long ptrdiff;
#define INLINE __device__ __forceinline__

INLINE float from_half(u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
INLINE u16 to_half(float f) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
INLINE float low(u32 w) { return from_half((u16)(w & 0xffff)); }
INLINE float high(u32 w) { return from_half((u16)(w >> 16)); }
INLINE float exp2_(float f) { float r; asm("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(f)); return r; }
// Two numbers as f16, or as bf16, the first in the low half.
INLINE u32 pack(float a, float b) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
    return r;
}
INLINE u32 pack_b(float a, float b) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
    return r;
}

INLINE u32 address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
// Asks for 16 bytes, of which `size` are copied and the rest zero, or for 4, 8 or 16.
INLINE void fetch(u32 to, const void* from, u32 size) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
}
INLINE void fetch16(u32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
template <int BYTES> INLINE void fetch_few(u32 to, const void* from, u32 size = BYTES) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(size) : "memory");
}
INLINE void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> INLINE void arrived() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Waits for the kernel before this one; lets the one behind start.
INLINE void wait_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
INLINE void launch_next() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

struct alignas(16) Words { u32 x, y, z, w; };

// Plain loads would be moved before the wait: what they read is written by the kernel before this one.
INLINE Words load16(const void* from) {
    Words v;
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
    return v;
}
// Elements 8 at to 8 at + 7 of a row of f32, or of f16.
INLINE void load_eight(float (&v)[8], const void* row, u32 at, bool f32) {
    if (f32) {
        const Words a = load16((const char*)row + at * 32), b = load16((const char*)row + at * 32 + 16);
        v[0] = __uint_as_float(a.x); v[1] = __uint_as_float(a.y); v[2] = __uint_as_float(a.z); v[3] = __uint_as_float(a.w);
        v[4] = __uint_as_float(b.x); v[5] = __uint_as_float(b.y); v[6] = __uint_as_float(b.z); v[7] = __uint_as_float(b.w);
    } else {
        const Words a = load16((const char*)row + at * 16);
        v[0] = low(a.x); v[1] = high(a.x); v[2] = low(a.y); v[3] = high(a.y);
        v[4] = low(a.z); v[5] = high(a.z); v[6] = low(a.w); v[7] = high(a.w);
    }
}
// Eight weights of a norm in the dtype DTYPE: 0 f32, 1 f16, 2 bf16.
template <int DTYPE> struct Weights {
    Words words[DTYPE ? 1 : 2];
    INLINE void load(const char* from, u32 at) {
        words[0] = load16(from + at * (DTYPE ? 16 : 32));
        if (!DTYPE) words[DTYPE ? 0 : 1] = load16(from + at * 32 + 16);
    }
    INLINE float operator[](int j) const {
        const u32* word = (const u32*)words;
        if (DTYPE == 0) return __uint_as_float(word[j]);
        if (DTYPE == 1) return j % 2 ? high(word[j / 2]) : low(word[j / 2]);
        return __uint_as_float(j % 2 ? word[j / 2] & 0xffff0000u : word[j / 2] << 16);
    }
};
// 1 / sqrt(mean of squares + eps) of a row of LEN elements, of which thread i of the block holds each eight
// i, i + THREADS, ..., and zeros beyond the row. However many threads there are, the sum is the same to the bit: 256
// neighbours by a tree, then these blocks four by four. Thus a norm within another kernel gives what the norm gives.
template <int LEN, int COUNT, int EACH> INLINE float norm_factor(const float (&v)[EACH][8], float (&squares)[(LEN + 255) / 256], float eps) {
    constexpr int BLOCKS = (LEN + 255) / 256;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        float square = 0;
#pragma unroll
        for (int j = 0; j < 8; j++) square = fmaf(v[i][j], v[i][j], square);
#pragma unroll
        for (int o = 16; o > 0; o >>= 1) square += __shfl_xor_sync(~0u, square, o);
        const u32 block = i * (COUNT / 32) + warp;
        if (lane == 0 && block < BLOCKS) squares[block] = square;
    }
    __syncthreads();
    auto at = [&](int block) { return block < BLOCKS ? squares[block] : 0; };
    float sum = 0;
#pragma unroll
    for (int b = 0; b < BLOCKS; b += 4) sum += (at(b) + at(b + 1)) + (at(b + 2) + at(b + 3));
    return rsqrtf(sum / LEN + eps);
}
