#pragma clang fp contract(off)
#if !defined(__HIPCC_RTC__) && !defined(__global__)
// clang without ROCm: its attributes, and builtins in place of AMD's device library.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define M(f) __builtin_##f
#else
#define M(f) f
#endif
typedef float f32;
typedef int i32;
typedef unsigned int u32;
typedef unsigned char u8;
typedef unsigned short h16;
#define KERNEL(x, y, z) extern "C" __global__ __attribute__((amdgpu_flat_work_group_size((x) * (y) * (z), (x) * (y) * (z)))) void
#define DEV static __device__ inline __attribute__((always_inline))
#define GLOBAL
#define LOCAL
#define SHARED __shared__
#define RESTRICT __restrict__
#define ALIGN(n) __attribute__((aligned(n)))
#define AXIS(f, d) ((d) == 0 ? __builtin_amdgcn_##f##_x() : (d) == 1 ? __builtin_amdgcn_##f##_y() : __builtin_amdgcn_##f##_z())
#define LOCAL_ID(d) ((u32)AXIS(workitem_id, d))
#define GROUP_ID(d) ((u32)AXIS(workgroup_id, d))
#define GROUP_COUNT(d) ((u32)AXIS(grid_size, d) / (u32)AXIS(workgroup_size, d))
#define LOCAL_INDEX() (LOCAL_ID(0) + (u32)AXIS(workgroup_size, 0) * (LOCAL_ID(1) + (u32)AXIS(workgroup_size, 1) * LOCAL_ID(2)))
#define BARRIER_LOCAL() barrier_all()
#define BARRIER_GLOBAL() barrier_all()
#define BARRIER_BOTH() barrier_all()
#define BARRIER_SUBGROUP() __builtin_amdgcn_wave_barrier()
#define ATOMIC_OF(f, p, v) __hip_atomic_##f(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)
#define ATOMIC_STORE(p, v) ATOMIC_OF(store, p, v)
#define ATOMIC_ADD(p, v) ATOMIC_OF(fetch_add, p, v)
#define ATOMIC_SUB(p, v) ATOMIC_OF(fetch_add, p, 0u - (u32)(v))
#define ATOMIC_AND(p, v) ATOMIC_OF(fetch_and, p, v)
#define ATOMIC_OR(p, v) ATOMIC_OF(fetch_or, p, v)
#define ATOMIC_XOR(p, v) ATOMIC_OF(fetch_xor, p, v)
#define ATOMIC_MIN(p, v) ATOMIC_OF(fetch_min, p, v)
#define ATOMIC_MAX(p, v) ATOMIC_OF(fetch_max, p, v)
#define ATOMIC_SWAP(p, v) ATOMIC_OF(exchange, p, v)
#define ATOMIC_CAS(p, c, v) compare_and_swap(p, c, v)
typedef unsigned long long lanes;
#define LANES ((u32)__builtin_amdgcn_wavefrontsize())
#define LANE() ((u32)__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)))
#define ACTIVE() ((lanes)__builtin_amdgcn_read_exec())
#define ALL_LANES (LANES == 64u ? ~0ull : 0xffffffffull)
#define SHUFFLE(active, x, lane) ((u32)__builtin_amdgcn_ds_bpermute((int)((lane) << 2u), (int)(x)))
#define BALLOT(x) ballot_of(x)
#define BALLOT_WORD(mask, k) ((k) == 0 ? (u32)(mask) : (k) == 1 ? (u32)((mask) >> 32) : 0u)
#define AS_F32(x) __builtin_bit_cast(f32, (u32)(x))
#define AS_I32(x) __builtin_bit_cast(i32, (f32)(x))
#define AS_U32(x) __builtin_bit_cast(u32, (f32)(x))
#define CLZ(x) leading_zeros(x)
#define POPCOUNT(x) ((u32)__builtin_popcount(x))
#define REVERSE(x) __builtin_bitreverse32(x)
#define HALF_TO_FLOAT(x) ((f32)__builtin_bit_cast(_Float16, x))
#define FLOAT_TO_HALF(x) __builtin_bit_cast(h16, (_Float16)(x))
#define m_abs(x) M(fabsf)(x)
#define m_sqrt(x) M(sqrtf)(x)
#define m_rsqrt(x) (1.0f / M(sqrtf)(x))
#define m_fma(x, y, z) M(fmaf)(x, y, z)
#define m_pow(x, y) M(powf)(x, y)
#define m_ldexp(x, e) M(ldexpf)(x, e)
#define m_atan2(y, x) M(atan2f)(y, x)
#define m_floor(x) M(floorf)(x)
#define m_ceil(x) M(ceilf)(x)
#define m_trunc(x) M(truncf)(x)
#define m_rint(x) M(rintf)(x)
#define m_exp(x) M(expf)(x)
#define m_exp2(x) M(exp2f)(x)
#define m_log(x) M(logf)(x)
#define m_log2(x) M(log2f)(x)
#define m_sin(x) M(sinf)(x)
#define m_cos(x) M(cosf)(x)
#define m_tan(x) M(tanf)(x)
#define m_asin(x) M(asinf)(x)
#define m_acos(x) M(acosf)(x)
#define m_atan(x) M(atanf)(x)
#define m_sinh(x) M(sinhf)(x)
#define m_cosh(x) M(coshf)(x)
#define m_tanh(x) M(tanhf)(x)
#define m_asinh(x) M(asinhf)(x)
#define m_acosh(x) M(acoshf)(x)
#define m_atanh(x) M(atanhf)(x)
static __device__ inline void barrier_all() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
static __device__ inline u32 leading_zeros(u32 x) { return x == 0u ? 32u : (u32)__builtin_clz(x); }
static __device__ inline lanes ballot_of(bool x) { return x ? (lanes)__builtin_amdgcn_read_exec() : 0ull; }
template <typename T> static __device__ inline T compare_and_swap(T* p, T expected, T value) {
    __hip_atomic_compare_exchange_strong(p, &expected, value, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    return expected;
}
