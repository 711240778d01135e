// Attention of one query row over a cache. One cluster of blocks treats a key/value head and all query heads that share
// it: each block a run of the cached keys, the last one also the new key. Scores and sums are products on tensor cores,
// 16 keys at a time in each warp; the warps' parts join in shared memory, the blocks' parts across the cluster.
//
// JOINED: q, k and v are as the projections left them: the kernel itself rotates q and k and writes the new cache row.
// Otherwise q is ready and the caches hold the new row.
//
// Cached rows before the new one were written by earlier runs and are asked for before the kernel waits.
//
// Constants: HEADS, KV_HEADS, D, WARPS, DEPTH, SCALE, JOINED.
#define THREADS (WARPS * 32)
#define GROUP (HEADS / KV_HEADS)
#define ROW (D * 2)
#define PIECES (D / 8)
#define HALF (16 * ROW)      // bytes of 16 keys, or of their values
#define STAGE (2 * HALF)
#define SPLITS 8             // blocks of a cluster
#define PART (GROUP * D + 2 * GROUP) // numbers of a block: sums, then the highest score and the total of each head
#define FEW 256              // cached keys that one block treats alone
#define AT_ONCE (32 / PIECES) // rows that one instruction of a warp fetches

INLINE void mma(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// What f16 loses of two numbers, times LEFT.
#define LEFT 2048.0f
INLINE u32 rest(u32 packed, float a, float b) { return pack((a - low(packed)) * LEFT, (b - high(packed)) * LEFT); }
INLINE void matrices(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
INLINE void transposed(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
INLINE u32 place(u32 row, u32 piece) { return row * ROW + ((piece ^ (row & 7)) << 4); }

// Elements `pair` of either half of a head, and their angle's cosine and sine.
struct Pair {
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

INLINE float read_of(u32 block, u32 at) {
    u32 there;
    float f;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(f) : "r"(there) : "memory");
    return f;
}
INLINE void meet() {
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}

extern "C" __global__ void __cluster_dims__(SPLITS, 1, 1) __launch_bounds__(THREADS) attention(
    const volatile u16* q,
#if JOINED
    const volatile u16* k, const volatile u16* v, const volatile float* angles,
#endif
    u16* k_cache, u16* v_cache, u16* y, const u32* symbols) {
    extern __shared__ __align__(128) char memory[];
    __shared__ __align__(16) u16 queries[GROUP][D];
    __shared__ float tops[WARPS][GROUP], totals[WARPS][GROUP];
    __shared__ float part[PART];
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, g = lane >> 2, t = lane & 3;
    const u32 p = symbols[1], split = blockIdx.x, kv = blockIdx.y;
    // Few keys are one block's.
    const bool few = p <= FEW;
    if (few && split > 0) return;
    const u32 run = few ? FEW : ((p + SPLITS - 1) / SPLITS + 15) / 16 * 16;
    const u32 begin = split * run < p ? split * run : p, end = begin + run < p ? begin + run : p;
    const u32 ring = address(memory) + warp * (DEPTH * STAGE);

    u32 ask_at = begin + warp * 16, ask_slot = 0;
    auto ask = [&]() {
        if (ask_at < end) {
            const u32 to = ring + ask_slot * STAGE, piece = lane % PIECES;
#pragma unroll
            for (u32 i = 0; i < 16; i += AT_ONCE) {
                const u32 row = i + lane / PIECES, at = ask_at + row;
                const u32 size = at < end ? 16 : 0;
                const size_t from = ((size_t)(at < end ? at : begin) * KV_HEADS + kv) * D + piece * 8;
                fetch(to + place(row, piece), k_cache + from, size);
                fetch(to + HALF + place(row, piece), v_cache + from, size);
            }
        }
        ask_at += WARPS * 16;
        if (++ask_slot == DEPTH) ask_slot = 0;
        commit();
    };
#if !JOINED
    wait_previous();
#endif
    for (int d = 0; d < DEPTH; d++) ask();
#if JOINED
    wait_previous();
#endif
    launch_next();
    const bool takes_new = split == (few ? 0 : SPLITS - 1) && warp == WARPS - 1;
#if JOINED
    // All that the projections left is asked for at once.
    constexpr int PAIRS = GROUP * D / 2, EACH = (PAIRS + THREADS - 1) / THREADS;
    Pair turned[EACH], new_key[D / 64];
    u16 new_value[D / 32];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const u32 at = i * THREADS + thread;
        if (at < PAIRS) turned[i].load(q + (kv * GROUP + at / (D / 2)) * D, angles, at % (D / 2));
    }
    if (takes_new) {
#pragma unroll
        for (int i = 0; i < D / 64; i++) new_key[i].load(k + kv * D, angles, i * 32 + lane);
#pragma unroll
        for (int i = 0; i < D / 32; i++) new_value[i] = v[kv * D + i * 32 + lane];
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const u32 at = i * THREADS + thread, head = at / (D / 2), pair = at % (D / 2);
        if (at >= PAIRS) break;
        queries[head][pair] = turned[i].first();
        queries[head][pair + D / 2] = turned[i].second();
    }
#else
    for (u32 i = thread; i < GROUP * D; i += THREADS) queries[i / D][i % D] = q[kv * GROUP * D + i];
#endif
    __syncthreads();
    u32 qa[D / 16], qb[D / 16];
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        qa[i] = g < GROUP ? *(const u32*)&queries[g < GROUP ? g : 0][i * 16 + t * 2] : 0;
        qb[i] = g < GROUP ? *(const u32*)&queries[g < GROUP ? g : 0][i * 16 + t * 2 + 8] : 0;
    }
    float top = -1e30f, total = 0, o[D / 8][4] = {};
    // 16 keys at `from`, of which the first `valid` count.
    auto treat = [&](u32 from, u32 valid) {
        float s[2][4] = {};
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            u32 b[4];
            matrices(b, from + place((lane >> 4) * 8 + (lane & 7), i * 2 + ((lane >> 3) & 1)));
            mma(s[0], qa[i], 0, qb[i], 0, b[0], b[1]);
            mma(s[1], qa[i], 0, qb[i], 0, b[2], b[3]);
        }
        float highest = top;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 key = (i >> 1) * 8 + t * 2 + (i & 1);
            float& score = s[i >> 1][i & 1];
            score = key < valid ? score * (float)(SCALE * 1.4426950408889634) : -1e30f;
            highest = fmaxf(highest, score);
        }
        highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
        const float fade = exp2_(top - highest);
        top = highest;
        float p4[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 key = (i >> 1) * 8 + t * 2 + (i & 1);
            p4[i] = key < valid ? exp2_(s[i >> 1][i & 1] - highest) : 0;
        }
        total = total * fade + ((p4[0] + p4[1]) + (p4[2] + p4[3]));
        // The rows of the product that no head has take what the weights lose as f16.
        const u32 pa = pack(p4[0], p4[1]), pb = pack(p4[2], p4[3]);
        const u32 ra = rest(pa, p4[0], p4[1]), rb = rest(pb, p4[2], p4[3]);
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            u32 b[4];
            transposed(b, from + HALF + place(((lane >> 3) & 1) * 8 + (lane & 7), i * 2 + (lane >> 4)));
#pragma unroll
            for (int j = 0; j < 4; j++) { o[2 * i][j] *= fade; o[2 * i + 1][j] *= fade; }
            mma(o[2 * i], pa, ra, pb, rb, b[0], b[1]);
            mma(o[2 * i + 1], pa, ra, pb, rb, b[2], b[3]);
        }
    };
    u32 slot = 0;
    for (u32 at = begin + warp * 16; at < end; at += WARPS * 16) {
        arrived<DEPTH - 1>();
        __syncwarp();
        treat(ring + slot * STAGE, end - at < 16 ? end - at : 16);
        __syncwarp();
        ask();
        if (++slot == DEPTH) slot = 0;
    }
    arrived<0>();
    __syncwarp();
    if (takes_new) {
        // The new key, alone among 16.
        char* stage = memory + warp * (DEPTH * STAGE);
        u16 *keys = (u16*)stage, *values = (u16*)(stage + HALF);
        const size_t row = ((size_t)p * KV_HEADS + kv) * D;
        for (u32 i = lane; i < HALF / 4; i += 32) ((u32*)values)[i] = 0;
        __syncwarp();
#if JOINED
#pragma unroll
        for (int i = 0; i < D / 64; i++) {
            const u32 pair = i * 32 + lane;
            k_cache[row + pair] = keys[pair] = new_key[i].first();
            k_cache[row + pair + D / 2] = keys[pair + D / 2] = new_key[i].second();
        }
#pragma unroll
        for (int i = 0; i < D / 32; i++) v_cache[row + i * 32 + lane] = values[i * 32 + lane] = new_value[i];
#else
        for (u32 i = lane; i < D; i += 32) {
            keys[i] = ((const volatile u16*)k_cache)[row + i];
            values[i] = ((const volatile u16*)v_cache)[row + i];
        }
#endif
        __syncwarp();
        treat(ring, 1);
    }
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    __syncthreads();
    float* joined = (float*)memory; // [WARPS][GROUP][D]
    if (g < GROUP) {
        if (t == 0) { tops[warp][g] = top; totals[warp][g] = total; }
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            float* to = joined + (warp * GROUP + g) * D + i * 8 + t * 2;
            to[0] = o[i][0] + o[i][2] * (1 / LEFT);
            to[1] = o[i][1] + o[i][3] * (1 / LEFT);
        }
    }
    __syncthreads();
    for (u32 i = thread; i < GROUP * D; i += THREADS) {
        const u32 h = i / D;
        float highest = -1e30f, sum = 0, weight = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) highest = fmaxf(highest, tops[w][h]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const float f = exp2_(tops[w][h] - highest);
            weight += f * totals[w][h];
            sum += f * joined[w * GROUP * D + i];
        }
        if (few) {
            y[kv * GROUP * D + i] = to_half(sum / weight);
            continue;
        }
        part[i] = sum;
        if (i % D == 0) {
            part[GROUP * D + h] = highest;
            part[GROUP * D + GROUP + h] = weight;
        }
    }
    if (few) return;
    meet();
    constexpr u32 SHARE = (GROUP * D + SPLITS - 1) / SPLITS; // outputs that each block joins
    for (u32 i = split * SHARE + thread; i < (split + 1) * SHARE && i < GROUP * D; i += THREADS) {
        const u32 h = i / D, at = address(part);
        float tops_of[SPLITS], highest = -1e30f, sum = 0, weight = 0;
#pragma unroll
        for (u32 s = 0; s < SPLITS; s++) {
            tops_of[s] = read_of(s, at + (GROUP * D + h) * 4);
            highest = fmaxf(highest, tops_of[s]);
        }
#pragma unroll
        for (u32 s = 0; s < SPLITS; s++) {
            const float f = exp2_(tops_of[s] - highest);
            weight += f * read_of(s, at + (GROUP * D + GROUP + h) * 4);
            sum += f * read_of(s, at + i * 4);
        }
        y[kv * GROUP * D + i] = to_half(sum / weight);
    }
    meet();
}
