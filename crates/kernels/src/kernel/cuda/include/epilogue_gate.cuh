// What gated products make of a sum of the first weight and one of the second: silu(gate) * up.
#include "base.cuh"

INLINE float silu_gate(float gate, float up) { return gate / (1.0f + __expf(-gate)) * up; }
// The same with an approximate division.
INLINE float silu_gate_fast(float gate, float up) { return __fdividef(gate, 1.0f + __expf(-gate)) * up; }
INLINE float sigmoid(float f) {
    const float e = expf(-fabsf(f));
    return (f < 0 ? e : 1.0f) / (1.0f + e);
}
