// The sum of what a row's experts give, each times its weight, and of what a dense layer gives, times its share: rounded
// where separate kernels do.
#include "base.cuh"

// `parts` are the sums of warps, `stride` numbers apart: SPLIT of each slot, then those of the dense layer. One expert that is
// chosen and does not exist gives zeros.
template <bool F32, u32 SLOTS, u32 SPLIT, u32 WARPS, u32 EXPERTS, u32 STRIDE>
INLINE float moe_sum(const float (&parts)[WARPS][STRIDE], u32 at, const u32 (&experts)[SLOTS], const float (&factors)[SLOTS + 1], float back) {
    typedef Number<F32> N;
    float sum = 0, dense = 0;
#pragma unroll
    for (u32 w = 0; w < SLOTS; w++) {
        float of_slot = 0;
#pragma unroll
        for (u32 p = 0; p < SPLIT; p++) of_slot += parts[w * SPLIT + p][at];
        of_slot = experts[w] < EXPERTS ? N::from(N::to(of_slot * back)) : 0;
        sum = fmaf(factors[w], of_slot, sum);
    }
#pragma unroll
    for (u32 w = SLOTS * SPLIT; w < WARPS; w++) dense += parts[w][at];
    dense = N::from(N::to(N::from(N::to(dense * back)) * factors[SLOTS]));
    return N::from(N::to(sum)) + dense;
}
