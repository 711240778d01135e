// The norm of a row within a block, as a kernel of its own or in front of a product.
#include "base.cuh"

// Eight weights of a norm in the dtype DTYPE: 0 f32, 1 f16, 2 bf16.
template <int DTYPE> struct NormWeights {
    Chunk chunks[DTYPE ? 1 : 2];
    INLINE void load(const char* from, u32 at) {
        chunks[0] = load16(from + at * (DTYPE ? 16 : 32));
        if constexpr (DTYPE == 0) chunks[1] = load16(from + at * 32 + 16);
    }
    INLINE float operator[](int j) const {
        const u32* word = (const u32*)chunks;
        if constexpr (DTYPE == 0) return __uint_as_float(word[j]);
        else if constexpr (DTYPE == 1) return j % 2 ? high(word[j / 2]) : low(word[j / 2]);
        else return __uint_as_float(j % 2 ? word[j / 2] & 0xffff0000u : word[j / 2] << 16);
    }
};

// sum += eight products of weights and numbers of shared memory.
template <int DTYPE> INLINE void add_eight(float& sum, const float4& a, const float4& b, const NormWeights<DTYPE>& w) {
    sum = fmaf(a.x, w[0], sum); sum = fmaf(a.y, w[1], sum); sum = fmaf(a.z, w[2], sum); sum = fmaf(a.w, w[3], sum);
    sum = fmaf(b.x, w[4], sum); sum = fmaf(b.y, w[5], sum); sum = fmaf(b.z, w[6], sum); sum = fmaf(b.w, w[7], sum);
}

// 1 / sqrt(mean of squares + eps) of a row of LEN elements, of which thread i of the block holds each eight
// i, i + COUNT, ..., and zeros beyond the row. However many threads there are, the sum is the same to the bit: 256
// neighbours by a tree, then these blocks four by four. Thus a norm within another kernel gives what the norm gives.
template <int LEN, int COUNT, int EACH> INLINE float norm_factor(const float (&v)[EACH][8], float (&squares)[(LEN + 255) / 256], float eps) {
    constexpr int BLOCKS = (LEN + 255) / 256;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        float square = 0;
#pragma unroll
        for (int j = 0; j < 8; j++) square = fmaf(v[i][j], v[i][j], square);
#pragma unroll
        for (int o = 16; o > 0; o >>= 1) square += __shfl_xor_sync(~0u, square, o);
        const u32 block = i * (COUNT / 32) + warp;
        if (lane == 0 && block < BLOCKS) squares[block] = square;
    }
    __syncthreads();
    auto at = [&](int block) { return block < BLOCKS ? squares[block] : 0; };
    float sum = 0;
#pragma unroll
    for (int b = 0; b < BLOCKS; b += 4) sum += (at(b) + at(b + 1)) + (at(b + 2) + at(b + 3));
    return rsqrtf(sum / LEN + eps);
}
