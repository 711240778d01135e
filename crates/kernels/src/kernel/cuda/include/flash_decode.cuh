// Attention of one query row over a cache. One cluster of blocks treats a key/value head and all query heads that share
// it: each block a run of the cached keys, the last one also the new key. Scores and sums are products on tensor cores,
// 16 keys at a time in each warp; the warps' parts are added up in shared memory, the blocks' parts across the cluster.
//
// FUSED: q, k and v are as the projections left them: the kernel itself rotates q and k and writes the new cache row.
// Otherwise q is ready and the caches hold the new row.
//
// Cached rows before the new one were written by earlier runs and are asked for before the kernel waits.
#include "mma.cuh"
#include "operands.cuh"

// What follows from the constants of a problem P.
template <class P> struct DecodeShape {
    static constexpr u32 threads = P::warps * 32, group = P::heads / P::kv_heads;
    static constexpr u32 row = P::d * 2, pieces = P::d / 8, half = 16 * row, stage = 2 * half; // bytes of 16 keys, and of values
    static constexpr u32 splits = 8;                         // blocks of a cluster
    static constexpr u32 part = group * P::d + 2 * group; // numbers of a block: sums, then the highest score and the total of each head
    static constexpr u32 few = 256;                          // cached keys that one block treats alone
    static constexpr u32 at_once = 32 / pieces;              // rows that one instruction of a warp fetches
    static constexpr u32 caches = P::fused ? 4 : 1, count = caches + 4;
    static INLINE u32 place(u32 line, u32 piece) { return line * row + ((piece ^ (line & 7)) << 4); }
};

template <class P> struct DecodeOperands {
    typedef DecodeShape<P> H;
    const volatile u16 *q, *k, *v;
    const volatile float* angles;
    u16 *k_cache, *v_cache, *y;
    const u32* symbols;
    INLINE explicit DecodeOperands(const Bindings<H::count>& in) {
        q = (const u16*)in.at[0];
        if constexpr (P::fused) k = (const u16*)in.at[1], v = (const u16*)in.at[2], angles = (const float*)in.at[3];
        k_cache = (u16*)in.at[H::caches], v_cache = (u16*)in.at[H::caches + 1];
        y = (u16*)in.at[H::caches + 2], symbols = (const u32*)in.at[H::caches + 3];
    }
};

// Elements `pair` of either half of a head of D, and their angle's cosine and sine.
template <u32 D> struct Pair {
    u16 a, b;
    float cosine, sine;
    INLINE void load(const volatile u16* head, const volatile float* angles, u32 pair) {
        a = head[pair], b = head[pair + D / 2];
        cosine = angles[pair], sine = angles[pair + D / 2];
    }
    // Both after rotation.
    INLINE u16 first() const { return to_half(from_half(a) * cosine - from_half(b) * sine); }
    INLINE u16 second() const { return to_half(from_half(b) * cosine + from_half(a) * sine); }
};

// A warp's ring of cached keys and values.
template <class P> struct DecodeStream {
    typedef DecodeShape<P> H;
    const DecodeOperands<P>& in;
    u32 lane, kv, begin, end, ring, ask_at, ask_slot;
    // Asks for the next 16.
    INLINE void ask() {
        if (ask_at < end) {
            const u32 to = ring + ask_slot * H::stage, piece = lane % H::pieces;
#pragma unroll
            for (u32 i = 0; i < 16; i += H::at_once) {
                const u32 row = i + lane / H::pieces, at = ask_at + row;
                const u32 size = at < end ? 16 : 0;
                const size_t from = ((size_t)(at < end ? at : begin) * P::kv_heads + kv) * P::d + piece * 8;
                cp_async_16(to + H::place(row, piece), in.k_cache + from, size);
                cp_async_16(to + H::half + H::place(row, piece), in.v_cache + from, size);
            }
        }
        ask_at += P::warps * 16;
        if (++ask_slot == P::depth) ask_slot = 0;
        cp_async_commit();
    }
};

// What a warp has seen: of each head the highest score, the total of the weights, and the weighted sum of the values.
template <class P> struct DecodeSums {
    typedef DecodeShape<P> H;
    static constexpr float left = 2048.0f;
    u32 lane, g, t;
    u32 qa[P::d / 16], qb[P::d / 16];
    float top, total, o[P::d / 8][4];

    INLINE DecodeSums(u32 lane, const u16 (&queries)[H::group][P::d]) : lane(lane), g(lane >> 2), t(lane & 3), top(-1e30f), total(0), o{} {
#pragma unroll
        for (int i = 0; i < P::d / 16; i++) {
            qa[i] = g < H::group ? *(const u32*)&queries[g < H::group ? g : 0][i * 16 + t * 2] : 0;
            qb[i] = g < H::group ? *(const u32*)&queries[g < H::group ? g : 0][i * 16 + t * 2 + 8] : 0;
        }
    }
    // What f16 loses of two numbers, times `left`.
    static INLINE u32 rest(u32 packed, float a, float b) { return pack((a - low(packed)) * left, (b - high(packed)) * left); }
    INLINE u32 key_of(int i) const { return (i >> 1) * 8 + t * 2 + (i & 1); }
    // Weighs 16 keys by their scores; what fades of the sums so far.
    INLINE float weigh(float (&s)[2][4], float (&weights)[4], u32 valid) {
        float highest = top;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float& score = s[i >> 1][i & 1];
            score = key_of(i) < valid ? score * (float)(P::scale * 1.4426950408889634) : -1e30f;
            highest = fmaxf(highest, score);
        }
        highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
        const float fade = exp2_(top - highest);
        top = highest;
#pragma unroll
        for (int i = 0; i < 4; i++) weights[i] = key_of(i) < valid ? exp2_(s[i >> 1][i & 1] - highest) : 0;
        total = total * fade + ((weights[0] + weights[1]) + (weights[2] + weights[3]));
        return fade;
    }
    // 16 keys at `from`, of which the first `valid` count.
    INLINE void treat(u32 from, u32 valid) {
        float s[2][4] = {}, weights[4];
#pragma unroll
        for (int i = 0; i < P::d / 16; i++) {
            u32 b[4];
            ldmatrix(b, from + H::place((lane >> 4) * 8 + (lane & 7), i * 2 + ((lane >> 3) & 1)));
            mma_f16(s[0], qa[i], 0, qb[i], 0, b[0], b[1]);
            mma_f16(s[1], qa[i], 0, qb[i], 0, b[2], b[3]);
        }
        const float fade = weigh(s, weights, valid);
        // The rows of the product that no head has take what the weights lose as f16.
        const u32 pa = pack(weights[0], weights[1]), pb = pack(weights[2], weights[3]);
        const u32 ra = rest(pa, weights[0], weights[1]), rb = rest(pb, weights[2], weights[3]);
#pragma unroll
        for (int i = 0; i < P::d / 16; i++) {
            u32 b[4];
            ldmatrix_trans(b, from + H::half + H::place(((lane >> 3) & 1) * 8 + (lane & 7), i * 2 + (lane >> 4)));
#pragma unroll
            for (int j = 0; j < 4; j++) { o[2 * i][j] *= fade; o[2 * i + 1][j] *= fade; }
            mma_f16(o[2 * i], pa, ra, pb, rb, b[0], b[1]);
            mma_f16(o[2 * i + 1], pa, ra, pb, rb, b[2], b[3]);
        }
    }
    // Leaves the sums of each head at `to`.
    INLINE void leave(float* to, float* tops, float* totals) const {
        if (g < H::group) {
            if (t == 0) { tops[g] = top; totals[g] = total; }
#pragma unroll
            for (int i = 0; i < P::d / 8; i++) {
                float* at = to + g * P::d + i * 8 + t * 2;
                at[0] = o[i][0] + o[i][2] * (1 / left);
                at[1] = o[i][1] + o[i][3] * (1 / left);
            }
        }
    }
};

// The queries, and in the warp that has the new key that and its value, all asked for at once.
template <class P> struct DecodeNew {
    typedef DecodeShape<P> H;
    static constexpr int PAIRS = H::group * P::d / 2, EACH = (PAIRS + H::threads - 1) / H::threads;
    Pair<P::d> turned[EACH], key[P::d / 64];
    u16 value[P::d / 32];

    INLINE void load(const DecodeOperands<P>& in, u32 kv, bool takes_new) {
        const u32 lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const u32 at = i * H::threads + threadIdx.x;
            if (at < PAIRS) turned[i].load(in.q + (kv * H::group + at / (P::d / 2)) * P::d, in.angles, at % (P::d / 2));
        }
        if (takes_new) {
#pragma unroll
            for (int i = 0; i < P::d / 64; i++) key[i].load(in.k + kv * P::d, in.angles, i * 32 + lane);
#pragma unroll
            for (int i = 0; i < P::d / 32; i++) value[i] = in.v[kv * P::d + i * 32 + lane];
        }
    }
    INLINE void store_queries(u16 (&queries)[H::group][P::d]) const {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const u32 at = i * H::threads + threadIdx.x, head = at / (P::d / 2), pair = at % (P::d / 2);
            if (at >= PAIRS) break;
            queries[head][pair] = turned[i].first();
            queries[head][pair + P::d / 2] = turned[i].second();
        }
    }
    // To the caches, behind the cached rows, and to shared memory.
    INLINE void store(const DecodeOperands<P>& in, size_t row, u16* keys, u16* values) const {
        const u32 lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < P::d / 64; i++) {
            const u32 pair = i * 32 + lane;
            in.k_cache[row + pair] = keys[pair] = key[i].first();
            in.k_cache[row + pair + P::d / 2] = keys[pair + P::d / 2] = key[i].second();
        }
#pragma unroll
        for (int i = 0; i < P::d / 32; i++) in.v_cache[row + i * 32 + lane] = values[i * 32 + lane] = value[i];
    }
};

// Adds up the parts of a block's warps: the result if it is alone, else this block's part.
template <class P> INLINE void decode_add_warps(const float* sums, const float (*tops)[P::heads / P::kv_heads],
    const float (*totals)[P::heads / P::kv_heads], float* part, u16* y, bool alone) {
    typedef DecodeShape<P> H;
    for (u32 i = threadIdx.x; i < H::group * P::d; i += H::threads) {
        const u32 h = i / P::d;
        float highest = -1e30f, sum = 0, weight = 0;
#pragma unroll
        for (int w = 0; w < P::warps; w++) highest = fmaxf(highest, tops[w][h]);
#pragma unroll
        for (int w = 0; w < P::warps; w++) {
            const float f = exp2_(tops[w][h] - highest);
            weight += f * totals[w][h];
            sum += f * sums[w * H::group * P::d + i];
        }
        if (alone) {
            y[i] = to_half(sum / weight);
            continue;
        }
        part[i] = sum;
        if (i % P::d == 0) {
            part[H::group * P::d + h] = highest;
            part[H::group * P::d + H::group + h] = weight;
        }
    }
}
// Adds up a share of the parts of the cluster's blocks.
template <class P> INLINE void decode_add_blocks(const float* part, u16* y, u32 split) {
    typedef DecodeShape<P> H;
    constexpr u32 SHARE = (H::group * P::d + H::splits - 1) / H::splits; // outputs that each block adds up
    for (u32 i = split * SHARE + threadIdx.x; i < (split + 1) * SHARE && i < H::group * P::d; i += H::threads) {
        const u32 h = i / P::d, at = address(part);
        float tops_of[H::splits], highest = -1e30f, sum = 0, weight = 0;
#pragma unroll
        for (u32 s = 0; s < H::splits; s++) {
            tops_of[s] = read_of(s, at + (H::group * P::d + h) * 4);
            highest = fmaxf(highest, tops_of[s]);
        }
#pragma unroll
        for (u32 s = 0; s < H::splits; s++) {
            const float f = exp2_(tops_of[s] - highest);
            weight += f * read_of(s, at + (H::group * P::d + H::group + h) * 4);
            sum += f * read_of(s, at + i * 4);
        }
        y[i] = to_half(sum / weight);
    }
}

template <class P> INLINE void flash_decode_block(const Bindings<DecodeShape<P>::count>& bound) {
    typedef DecodeShape<P> H;
    extern __shared__ __align__(128) char memory[];
    __shared__ __align__(16) u16 queries[H::group][P::d];
    __shared__ float tops[P::warps][H::group], totals[P::warps][H::group];
    __shared__ float part[H::part];
    const DecodeOperands<P> in(bound);
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
    const u32 p = in.symbols[1], split = blockIdx.x, kv = blockIdx.y;
    // Few keys are one block's.
    const bool few = p <= H::few;
    if (few && split > 0) return;
    const u32 run = few ? H::few : ((p + H::splits - 1) / H::splits + 15) / 16 * 16;
    const u32 begin = split * run < p ? split * run : p, end = begin + run < p ? begin + run : p;
    const u32 ring = address(memory) + warp * (P::depth * H::stage);
    DecodeStream<P> stream = {in, lane, kv, begin, end, ring, begin + warp * 16, 0};
    if constexpr (!P::fused) wait_previous();
    for (int d = 0; d < P::depth; d++) stream.ask();
    if constexpr (P::fused) wait_previous();
    launch_next();
    const bool takes_new = split == (few ? 0 : H::splits - 1) && warp == P::warps - 1;
    DecodeNew<P> fresh;
    if constexpr (P::fused) {
        fresh.load(in, kv, takes_new);
        fresh.store_queries(queries);
    } else {
        for (u32 i = thread; i < H::group * P::d; i += H::threads) queries[i / P::d][i % P::d] = in.q[kv * H::group * P::d + i];
    }
    __syncthreads();
    DecodeSums<P> sums(lane, queries);
    u32 slot = 0;
    for (u32 at = begin + warp * 16; at < end; at += P::warps * 16) {
        cp_async_wait<P::depth - 1>();
        __syncwarp();
        sums.treat(ring + slot * H::stage, end - at < 16 ? end - at : 16);
        __syncwarp();
        stream.ask();
        if (++slot == P::depth) slot = 0;
    }
    cp_async_wait<0>();
    __syncwarp();
    if (takes_new) {
        // The new key, alone among 16.
        char* stage = memory + warp * (P::depth * H::stage);
        u16 *keys = (u16*)stage, *values = (u16*)(stage + H::half);
        const size_t row = ((size_t)p * P::kv_heads + kv) * P::d;
        for (u32 i = lane; i < H::half / 4; i += 32) ((u32*)values)[i] = 0;
        __syncwarp();
        if constexpr (P::fused) {
            fresh.store(in, row, keys, values);
        } else {
            for (u32 i = lane; i < P::d; i += 32) {
                keys[i] = ((const volatile u16*)in.k_cache)[row + i];
                values[i] = ((const volatile u16*)in.v_cache)[row + i];
            }
        }
        __syncwarp();
        sums.treat(ring, 1);
    }
    sums.total += __shfl_xor_sync(~0u, sums.total, 1);
    sums.total += __shfl_xor_sync(~0u, sums.total, 2);
    __syncthreads();
    float* all = (float*)memory; // [WARPS][GROUP][D]
    sums.leave(all + warp * H::group * P::d, tops[warp], totals[warp]);
    __syncthreads();
    u16* y = in.y + kv * H::group * P::d;
    decode_add_warps<P>(all, tops, totals, part, y, few);
    if (few) return;
    cluster_sync();
    decode_add_blocks<P>(part, y, split);
    cluster_sync();
}
