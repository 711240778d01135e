// Rotations of heads: element i of the first half of a head turns with element i of the second half.
#include "base.cuh"

// Eight elements of f16.
struct alignas(16) Eight { u32 w[4]; };

// Rotates eight elements of the first half of a head of SIZE elements, from `from` on, and those that turn with them, and leaves them
// at `to`. `angles` has the cosines of the first half of the row from there on, and SIZE / 2 elements further the sines.
template <u32 SIZE> INLINE void rotate_eight(u16* to, const u16* from, const float* angles) {
    const Eight first = *(const Eight*)from, second = *(const Eight*)(from + SIZE / 2);
    const float2* turn = (const float2*)angles;
    Eight low_half, high_half;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float2 cosine = turn[j], sine = turn[SIZE / 4 + j];
        const u32 a = first.w[j], b = second.w[j];
        low_half.w[j] = pack(low(a) * cosine.x - low(b) * sine.x, high(a) * cosine.y - high(b) * sine.y);
        high_half.w[j] = pack(low(b) * cosine.x + low(a) * sine.x, high(b) * cosine.y + high(a) * sine.y);
    }
    *(Eight*)to = low_half;
    *(Eight*)(to + SIZE / 2) = high_half;
}
// Copies the same elements as they are.
template <u32 SIZE> INLINE void copy_eight(u16* to, const u16* from) {
    *(Eight*)to = *(const Eight*)from;
    *(Eight*)(to + SIZE / 2) = *(const Eight*)(from + SIZE / 2);
}
