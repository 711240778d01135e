// Types, conversions between number formats, and reads of memory.
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;
typedef long long ptrdiff;
#define INLINE __device__ __forceinline__
// Not every kernel looks at all constants of its problem.
#pragma nv_diag_suppress 177

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

// A number of a kernel's input or output, f32 or f16, and what rounding to it leaves.
template <bool F32> struct Number;
template <> struct Number<true> {
    typedef float type;
    static INLINE float to(float f) { return f; }
    static INLINE float from(float f) { return f; }
    static INLINE float load(const float* at) {
        float f;
        asm volatile("ld.global.f32 %0, [%1];" : "=f"(f) : "l"(at) : "memory");
        return f;
    }
};
template <> struct Number<false> {
    typedef u16 type;
    static INLINE u16 to(float f) { return to_half(f); }
    static INLINE float from(u16 h) { return from_half(h); }
    static INLINE u16 load(const u16* at) {
        u16 h;
        asm volatile("ld.global.u16 %0, [%1];" : "=h"(h) : "l"(at) : "memory");
        return h;
    }
};

// A place in shared memory.
INLINE u32 address(const void* p) {
    u32 at = (u32)__cvta_generic_to_shared(p);
    return at;
}

// A 16-byte chunk.
struct alignas(16) Chunk { u32 x, y, z, w; };

// Plain loads would be moved before the wait: what they read is written by the kernel before this one.
INLINE Chunk load16(const void* from) {
    Chunk v;
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
    return v;
}
INLINE u32 load4(const u32* from) {
    u32 v;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    return v;
}
// Elements 8 at to 8 at + 7 of a row of f32, or of f16.
INLINE void load_eight(float (&v)[8], const void* row, u32 at, bool f32) {
    if (f32) {
        const Chunk a = load16((const char*)row + at * 32), b = load16((const char*)row + at * 32 + 16);
        v[0] = __uint_as_float(a.x); v[1] = __uint_as_float(a.y); v[2] = __uint_as_float(a.z); v[3] = __uint_as_float(a.w);
        v[4] = __uint_as_float(b.x); v[5] = __uint_as_float(b.y); v[6] = __uint_as_float(b.z); v[7] = __uint_as_float(b.w);
    } else {
        const Chunk a = load16((const char*)row + at * 16);
        v[0] = low(a.x); v[1] = high(a.x); v[2] = low(a.y); v[3] = high(a.y);
        v[4] = low(a.z); v[5] = high(a.z); v[6] = low(a.w); v[7] = high(a.w);
    }
}
// Eight numbers as f16.
INLINE Chunk pack_eight(const float (&v)[8]) {
    Chunk h;
    h.x = pack(v[0], v[1]);
    h.y = pack(v[2], v[3]);
    h.z = pack(v[4], v[5]);
    h.w = pack(v[6], v[7]);
    return h;
}

// Reads of shared memory.
INLINE Chunk read16(u32 at) {
    Chunk v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}
INLINE u32 read4(u32 at) {
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}
INLINE u16 read2(u32 at) {
    u16 v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at));
    return v;
}
// Reads 16 bytes in the lanes of which `mine` is not 0; the others keep what they have. (Reading zeros there instead costs
// more: lanes that read nothing keep no bank of shared memory busy.)
INLINE void read_mine(Chunk& v, u32 at, u32 mine) {
    asm volatile("{.reg .pred q; setp.ne.u32 q, %5, 0; @q ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];}"
        : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w) : "r"(at), "r"(mine));
}

// Element i of a bias or of a norm's weights in the dtype DTYPE: 0 f32, 1 f16, 2 bf16.
template <int DTYPE> INLINE float element(const void* from, u32 i) {
    if constexpr (DTYPE == 0) return ((const float*)from)[i];
    else if constexpr (DTYPE == 1) return from_half(((const u16*)from)[i]);
    else return __uint_as_float((u32)((const u16*)from)[i] << 16);
}
// The same of what no kernel writes meanwhile.
template <int DTYPE> INLINE float constant_element(const void* from, u32 i) {
    if constexpr (DTYPE == 0) return __ldg((const float*)from + i);
    else if constexpr (DTYPE == 1) return from_half(__ldg((const u16*)from + i));
    else return __uint_as_float((u32)__ldg((const u16*)from + i) << 16);
}
// The number of rows, a sum of multiples of the symbols n, p and s and of a constant.
template <u32 N, u32 P, u32 C, u32 S = 0> INLINE u32 rows_of(const u32* symbols) {
    return N * symbols[0] + P * symbols[1] + S * symbols[2] + C;
}
