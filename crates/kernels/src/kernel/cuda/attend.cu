// Attention of many rows over the cache, with grouped heads, by products on tensor cores (flash attention).
//
// Constants: HEADS, KV_HEADS, D (64 or 128), SCALE, WINDOW (keys that a query sees at most; 0: all before it), JOINED: the
// queries are rotated by the angles first. A block of four warps takes 64 queries of a head; keys and values come in stages
// of 64 rows. Dao, "FlashAttention-2", 2023, algorithm 1.
#define THREADS 128
#define QUERIES 64
#define KEYS 64
#define ROW (D * 2)
#define PIECES (D / 8)
#define HALF (KEYS * ROW)   // bytes of a stage's keys, or of its values
#define STAGE (2 * HALF)
#define LOADS (KEYS * PIECES / THREADS)

INLINE void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
INLINE void matrices(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
INLINE void transposed(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
INLINE u32 place(u32 row, u32 piece) { return row * ROW + ((piece ^ (row & 7)) << 4); }

extern "C" __global__ void __launch_bounds__(THREADS) attend(
    const u16* q,
#if JOINED
    const float* angles,
#endif
    const u16* k_cache, const u16* v_cache, u16* y, const u32* symbols) {
    extern __shared__ __align__(128) char memory[];
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, g = lane >> 2, t = lane & 3;
    const u32 n = symbols[0], p = symbols[1], head = blockIdx.x, kv = head / (HEADS / KV_HEADS);
    // The longest rows first.
    const u32 from = (gridDim.y - 1 - blockIdx.y) * QUERIES;
    const u32 end = p + (from + QUERIES < n ? from + QUERIES : n);
    u32 begin = 0;
#if WINDOW
    if (p + from >= WINDOW) begin = (p + from + 1 - WINDOW) / KEYS * KEYS;
#endif
    const u32 ring = address(memory);
    wait_previous();
    launch_next();

    auto ask = [&](u32 at, u32 slot) {
        if (at < end) {
            const u32 piece = thread % PIECES;
#pragma unroll
            for (u32 i = 0; i < LOADS; i++) {
                const u32 row = thread / PIECES + i * (THREADS / PIECES);
                const u32 size = at + row < end ? 16 : 0;
                const size_t source = ((size_t)(size ? at + row : at) * KV_HEADS + kv) * D + piece * 8;
                const u32 to = ring + slot * STAGE + place(row, piece);
                fetch(to, k_cache + source, size);
                fetch(to + HALF, v_cache + source, size);
            }
        }
        commit();
    };
    ask(begin, 0);

    // Rows g and g + 8 of the warp's 16 queries; those beyond the last are that one again.
    u32 rows[2], a[D / 16][4];
#pragma unroll
    for (int h = 0; h < 2; h++) rows[h] = from + warp * 16 + g + 8 * h;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const u32 row = rows[h] < n ? rows[h] : n - 1;
        const u32* source = (const u32*)(q + ((size_t)row * HEADS + head) * D) + t;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            a[i][h] = source[i * 8];
            a[i][h + 2] = source[i * 8 + 4];
        }
#if JOINED
        const float2* turn = (const float2*)(angles + (size_t)row * D) + t;
#pragma unroll
        for (int i = 0; i < D / 32; i++) {
#pragma unroll
            for (int s = 0; s < 2; s++) {
                const float2 cosine = turn[i * 8 + s * 4], sine = turn[D / 4 + i * 8 + s * 4];
                const u32 first = a[i][h + 2 * s], second = a[i + D / 32][h + 2 * s];
                a[i][h + 2 * s] = pack(low(first) * cosine.x - low(second) * sine.x, high(first) * cosine.y - high(second) * sine.y);
                a[i + D / 32][h + 2 * s] = pack(low(second) * cosine.x + low(first) * sine.x, high(second) * cosine.y + high(first) * sine.y);
            }
        }
#endif
    }
    float top[2] = {-1e30f, -1e30f}, total[2] = {}, o[D / 8][4] = {};
    u32 slot = 0;
    for (u32 at = begin; at < end; at += KEYS) {
        ask(at + KEYS, slot ^ 1);
        arrived<1>();
        __syncthreads();
        const u32 keys = ring + slot * STAGE, values = keys + HALF;
        float s[KEYS / 8][4] = {};
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
#pragma unroll
            for (int j = 0; j < KEYS / 16; j++) {
                u32 b[4];
                matrices(b, keys + place(j * 16 + (lane >> 4) * 8 + (lane & 7), i * 2 + ((lane >> 3) & 1)));
                mma(s[2 * j], a[i], b[0], b[1]);
                mma(s[2 * j + 1], a[i], b[2], b[3]);
            }
        }
        // Element 2h + e of s[j] is row g + 8h, key 8j + 2t + e.
        const u32 low_position = p + from + warp * 16;
        const bool masked = at + KEYS > low_position + 1 || at + KEYS > end || (WINDOW && at + WINDOW <= low_position + 15);
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                s[j][e] *= (float)(SCALE * 1.4426950408889634);
                if (masked) {
                    const u32 key = at + j * 8 + t * 2 + (e & 1), position = p + rows[e >> 1];
                    if (key > position || key >= end || (WINDOW && key + WINDOW <= position)) s[j][e] = -1e30f;
                }
            }
        }
        float fades[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float highest = top[h];
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++) highest = fmaxf(highest, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
            highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
            highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
            fades[h] = exp2_(top[h] - highest);
            top[h] = highest;
            // Where no key was seen yet, all scores are the lowest.
            const float shift = highest == -1e30f ? 0 : highest;
            float sum = 0;
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    s[j][2 * h + e] = exp2_(s[j][2 * h + e] - shift);
                    sum += s[j][2 * h + e];
                }
            }
            total[h] = total[h] * fades[h] + sum;
        }
        // As two planes of f16, which together are as good as f32.
        u32 chances[KEYS / 16][4], rest[KEYS / 16][4];
#pragma unroll
        for (int j = 0; j < KEYS / 16; j++) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float first = s[2 * j + k / 2][k % 2 * 2], second = s[2 * j + k / 2][k % 2 * 2 + 1];
                chances[j][k] = pack(first, second);
                rest[j][k] = pack(first - low(chances[j][k]), second - high(chances[j][k]));
            }
        }
        // Tensor cores round toward zero whatever they add up: they sum up a stage, ordinary additions the stages.
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            float part[2][4] = {};
#pragma unroll
            for (int j = 0; j < KEYS / 16; j++) {
                u32 b[4];
                transposed(b, values + place(j * 16 + ((lane >> 3) & 1) * 8 + (lane & 7), i * 2 + (lane >> 4)));
                mma(part[0], chances[j], b[0], b[1]);
                mma(part[1], chances[j], b[2], b[3]);
                mma(part[0], rest[j], b[0], b[1]);
                mma(part[1], rest[j], b[2], b[3]);
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
                o[2 * i][e] = fmaf(o[2 * i][e], fades[e >> 1], part[0][e]);
                o[2 * i + 1][e] = fmaf(o[2 * i + 1][e], fades[e >> 1], part[1][e]);
            }
        }
        __syncthreads();
        slot ^= 1;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        total[h] += __shfl_xor_sync(~0u, total[h], 1);
        total[h] += __shfl_xor_sync(~0u, total[h], 2);
        if (rows[h] >= n) continue;
        u32* to = (u32*)(y + ((size_t)rows[h] * HEADS + head) * D) + t;
#pragma unroll
        for (int i = 0; i < D / 8; i++) to[i * 4] = pack(o[i][2 * h] / total[h], o[i][2 * h + 1] / total[h]);
    }
}
