// What is added to a rounded result, as the addition behind a product finds it. A number that a thread adds at the end of a few
// tiles is asked for at their beginning, if it is one.
#include "base.cuh"

template <bool F32, bool EARLY> struct Residual {
    typedef Number<F32> N;
    typename N::type bits;
    INLINE void prefetch(const typename N::type* at) { bits = N::load(at); }
    // `at` has what belongs to the sum.
    INLINE float added(float sum, const typename N::type* at) {
        if constexpr (!EARLY) bits = N::load(at);
        return N::from(N::to(sum)) + N::from(bits);
    }
};
