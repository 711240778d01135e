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
// Asks for 16 bytes, of which `size` are copied and the rest zero, or for 8.
INLINE void fetch(u32 to, const void* from, u32 size) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
}
INLINE void fetch16(u32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
INLINE void fetch8(u32 to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
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
