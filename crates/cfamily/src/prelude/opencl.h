#pragma OPENCL FP_CONTRACT OFF
typedef float f32;
typedef int i32;
typedef uint u32;
typedef uchar u8;
typedef ushort h16;
#define KERNEL(x, y, z) __kernel __attribute__((reqd_work_group_size(x, y, z))) void
#define DEV static
#define GLOBAL __global
#define LOCAL __local
#define SHARED __local
#define RESTRICT restrict
#define ALIGN(n) __attribute__((aligned(n)))
#define LOCAL_ID(d) ((u32)get_local_id(d))
#define GROUP_ID(d) ((u32)get_group_id(d))
#define GROUP_COUNT(d) ((u32)get_num_groups(d))
#define LOCAL_INDEX() (LOCAL_ID(0) + (u32)get_local_size(0) * (LOCAL_ID(1) + (u32)get_local_size(1) * LOCAL_ID(2)))
#define INVOCATIONS() ((u32)(get_local_size(0) * get_local_size(1) * get_local_size(2)))
#define LANES 8u
#define LANE() (LOCAL_INDEX() & 7u)
#define BARRIER_LOCAL() barrier(CLK_LOCAL_MEM_FENCE)
#define BARRIER_GLOBAL() barrier(CLK_GLOBAL_MEM_FENCE)
#define BARRIER_BOTH() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define ATOMIC_STORE(p, v) atomic_xchg(p, v)
#define ATOMIC_ADD(p, v) atomic_add(p, v)
#define ATOMIC_SUB(p, v) atomic_sub(p, v)
#define ATOMIC_AND(p, v) atomic_and(p, v)
#define ATOMIC_OR(p, v) atomic_or(p, v)
#define ATOMIC_XOR(p, v) atomic_xor(p, v)
#define ATOMIC_MIN(p, v) atomic_min(p, v)
#define ATOMIC_MAX(p, v) atomic_max(p, v)
#define ATOMIC_SWAP(p, v) atomic_xchg(p, v)
#define ATOMIC_CAS(p, c, v) atomic_cmpxchg(p, c, v)
#define AS_F32(x) as_float(x)
#define AS_I32(x) as_int(x)
#define AS_U32(x) as_uint(x)
#define CLZ(x) clz(x)
#define POPCOUNT(x) popcount(x)
#define REVERSE(x) reverse_bits(x)
#define HALF_TO_FLOAT(x) vload_half(0, (const half*)&x)
#define FLOAT_TO_HALF(x) half_bits(x)
#define m_abs(x) fabs(x)
#define m_sqrt(x) sqrt(x)
#define m_rsqrt(x) rsqrt(x)
#define m_floor(x) floor(x)
#define m_ceil(x) ceil(x)
#define m_trunc(x) trunc(x)
#define m_rint(x) rint(x)
#define m_fma(x, y, z) fma(x, y, z)
#define m_exp(x) exp(x)
#define m_exp2(x) exp2(x)
#define m_log(x) log(x)
#define m_log2(x) log2(x)
#define m_pow(x, y) pow(x, y)
#define m_ldexp(x, e) ldexp(x, e)
#define m_sin(x) sin(x)
#define m_cos(x) cos(x)
#define m_tan(x) tan(x)
#define m_asin(x) asin(x)
#define m_acos(x) acos(x)
#define m_atan(x) atan(x)
#define m_atan2(y, x) atan2(y, x)
#define m_sinh(x) sinh(x)
#define m_cosh(x) cosh(x)
#define m_tanh(x) tanh(x)
#define m_asinh(x) asinh(x)
#define m_acosh(x) acosh(x)
#define m_atanh(x) atanh(x)
static h16 half_bits(f32 x) {
    h16 bits;
    vstore_half_rte(x, 0, (half*)&bits);
    return bits;
}
static u32 reverse_bits(u32 x) {
    x = ((x >> 1u) & 0x55555555u) | ((x & 0x55555555u) << 1u);
    x = ((x >> 2u) & 0x33333333u) | ((x & 0x33333333u) << 2u);
    x = ((x >> 4u) & 0x0f0f0f0fu) | ((x & 0x0f0f0f0fu) << 4u);
    x = ((x >> 8u) & 0x00ff00ffu) | ((x & 0x00ff00ffu) << 8u);
    return (x >> 16u) | (x << 16u);
}
