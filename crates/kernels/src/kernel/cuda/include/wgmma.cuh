// Products of four warps on the tensor cores of a Hopper chip (sm_90a), 64 rows by some columns by 16 elements along K, of f16
// with sums in f32.
#include "base.cuh"

// A place in shared memory as the tensor cores take it: rows of 128 bytes, swizzled, 8 of them in 1024 bytes, and the next 64
// elements of a row, if there are more, `next` bytes further.
INLINE u64 wgmma_matrix(u32 at, u32 next = 16) {
    return (u64)((at & 0x3ffff) >> 4) | (u64)(next / 16) << 16 | 64ull << 32 | 1ull << 62;
}
INLINE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all but the last MORE groups of products.
template <int MORE> INLINE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(MORE) : "memory"); }
// The same, for sums that are read from here on.
template <int MORE, int LEN> INLINE void wgmma_wait(float (&c)[LEN]) {
    wgmma_wait<MORE>();
#pragma unroll
    for (int i = 0; i < LEN; i++) asm volatile("" : "+f"(c[i])::"memory");
}

#define R8(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
#define R32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define R64 R32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// c = a b^T, added to c if `more`, of rows in shared memory, for 64 or 128 columns.
INLINE void wgmma(float (&c)[32], u64 a, u64 b, u32 more) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %34, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" R32 "}, %32, %33, p, 1, 1, 0, 0;}"
        : R8(c, 0), R8(c, 8), R8(c, 16), R8(c, 24) : "l"(a), "l"(b), "r"(more));
}
INLINE void wgmma(float (&c)[64], u64 a, u64 b, u32 more) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %66, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" R64 "}, %64, %65, p, 1, 1, 0, 0;}"
        : R8(c, 0), R8(c, 8), R8(c, 16), R8(c, 24), R8(c, 32), R8(c, 40), R8(c, 48), R8(c, 56)
        : "l"(a), "l"(b), "r"(more));
}
// The same with a in registers; c = a b instead if TURNED.
template <int TURNED> INLINE void wgmma(float (&c)[32], const u32* a, u64 b, u32 more) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %37, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" R32 "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;}"
        : R8(c, 0), R8(c, 8), R8(c, 16), R8(c, 24)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more), "n"(TURNED));
}
template <int TURNED> INLINE void wgmma(float (&c)[64], const u32* a, u64 b, u32 more) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %69, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" R64 "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;}"
        : R8(c, 0), R8(c, 8), R8(c, 16), R8(c, 24), R8(c, 32), R8(c, 40), R8(c, 48), R8(c, 56)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more), "n"(TURNED));
}
