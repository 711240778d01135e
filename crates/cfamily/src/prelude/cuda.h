typedef float f32;
typedef int i32;
typedef unsigned int u32;
typedef unsigned char u8;
typedef unsigned short h16;
#define KERNEL(x, y, z) extern "C" __global__ void __launch_bounds__((x) * (y) * (z))
#define DEV static __device__ __forceinline__
#define GLOBAL
#define LOCAL
#define SHARED __shared__
#define RESTRICT __restrict__
#define ALIGN(n) __align__(n)
#define AXIS(v, d) ((d) == 0 ? v.x : (d) == 1 ? v.y : v.z)
#define LOCAL_ID(d) AXIS(threadIdx, d)
#define GROUP_ID(d) AXIS(blockIdx, d)
#define GROUP_COUNT(d) AXIS(gridDim, d)
#define LOCAL_INDEX() (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z))
#define BARRIER_LOCAL() __syncthreads()
#define BARRIER_GLOBAL() __syncthreads()
#define BARRIER_BOTH() __syncthreads()
#define BARRIER_SUBGROUP() __syncwarp(__activemask())
#define ATOMIC_STORE(p, v) atomicExch(p, v)
#define ATOMIC_ADD(p, v) atomicAdd(p, v)
#define ATOMIC_SUB(p, v) atomicSub(p, v)
#define ATOMIC_AND(p, v) atomicAnd(p, v)
#define ATOMIC_OR(p, v) atomicOr(p, v)
#define ATOMIC_XOR(p, v) atomicXor(p, v)
#define ATOMIC_MIN(p, v) atomicMin(p, v)
#define ATOMIC_MAX(p, v) atomicMax(p, v)
#define ATOMIC_SWAP(p, v) atomicExch(p, v)
#define ATOMIC_CAS(p, c, v) atomicCAS(p, c, v)
typedef u32 lanes;
#define LANES 32u
#define LANE() (LOCAL_INDEX() & 31u)
#define ACTIVE() __activemask()
#define ALL_LANES 0xffffffffu
#define SHUFFLE(active, x, lane) __shfl_sync(active, x, (int)(lane))
#define BALLOT(x) __ballot_sync(__activemask(), x)
#define BALLOT_WORD(mask, k) ((k) == 0 ? (mask) : 0u)
#define AS_F32(x) __uint_as_float((u32)(x))
#define AS_I32(x) __float_as_int(x)
#define AS_U32(x) __float_as_uint(x)
#define CLZ(x) ((u32)__clz((int)(x)))
#define POPCOUNT(x) ((u32)__popc(x))
#define REVERSE(x) __brev(x)
#define HALF_TO_FLOAT(x) half_value(x)
#define FLOAT_TO_HALF(x) half_bits(x)
#define m_abs(x) fabsf(x)
#define m_sqrt(x) sqrtf(x)
#define m_rsqrt(x) rsqrtf(x)
#define m_fma(x, y, z) fmaf(x, y, z)
#define m_pow(x, y) powf(x, y)
#define m_ldexp(x, e) ldexpf(x, e)
#define m_atan2(y, x) atan2f(y, x)
#define m_floor(x) floorf(x)
#define m_ceil(x) ceilf(x)
#define m_trunc(x) truncf(x)
#define m_rint(x) rintf(x)
#define m_exp(x) expf(x)
#define m_exp2(x) exp2f(x)
#define m_log(x) logf(x)
#define m_log2(x) log2f(x)
#define m_sin(x) sinf(x)
#define m_cos(x) cosf(x)
#define m_tan(x) tanf(x)
#define m_asin(x) asinf(x)
#define m_acos(x) acosf(x)
#define m_atan(x) atanf(x)
#define m_sinh(x) sinhf(x)
#define m_cosh(x) coshf(x)
#define m_tanh(x) tanhf(x)
#define m_asinh(x) asinhf(x)
#define m_acosh(x) acoshf(x)
#define m_atanh(x) atanhf(x)
static __device__ __forceinline__ f32 half_value(h16 x) {
    f32 y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
static __device__ __forceinline__ h16 half_bits(f32 x) {
    h16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
