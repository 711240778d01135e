// Attention of many rows over the cache, with grouped heads, on the tensor cores of a Hopper chip (sm_90a): `attend.cu` with
// products of 64 rows (`wgmma`).
//
// Constants: HEADS, KV_HEADS, D (64 or 128), SCALE, WINDOW (keys that a query sees at most; 0: all before it), JOINED: the
// queries are rotated by the angles first. A block of two groups of four warps takes 128 queries of a head, which it keeps in
// shared memory; keys and values come in stages of 64 rows. The scores of a stage are computed while the values of the one
// before are added up. Tensor cores round toward zero whatever they add up: they sum up a stage, ordinary additions the
// stages. Dao, "FlashAttention-2", 2023, algorithm 1.
#define THREADS 256
#define QUERIES 128
#define OF_GROUP 64
#define KEYS 64
#define STAGES 4
#define PIECES (D / 8)
#define SIDE (KEYS * 128)   // bytes of 64 elements of a stage's keys, or of its values
#define HALF (KEYS * D * 2)
#define STAGE (2 * HALF)
#define LOADS (KEYS * PIECES / THREADS)
#define ASKED (OF_GROUP * 128)   // bytes of 64 elements of a group's queries

typedef unsigned long long u64;

// A place in shared memory as the tensor cores take it: rows of 128 bytes, swizzled, 8 of them in 1024 bytes, and the next 64
// elements of a row a SIDE further.
INLINE u64 matrix(u32 at) { return (u64)((at & 0x3ffff) >> 4) | (u64)(SIDE / 16) << 16 | 64ull << 32 | 1ull << 62; }
INLINE void before_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void after_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all but the last MORE groups of products.
template <int MORE, int LEN> INLINE void products(float (&c)[LEN]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(MORE) : "memory");
#pragma unroll
    for (int i = 0; i < LEN; i++) asm volatile("" : "+f"(c[i])::"memory");
}
#define R8(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
// c = a b^T, added to c if `more`, of rows in shared memory.
INLINE void multiply(float (&c)[32], u64 a, u64 b, u32 more) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %34, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;}"
        : R8(c, 0), R8(c, 8), R8(c, 16), R8(c, 24) : "l"(a), "l"(b), "r"(more));
}
// c = a b, added to c if `more`, for D columns.
INLINE void multiply(float (&c)[32], const u32 (&a)[4], u64 b, u32 more) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %37, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;}"
        : R8(c, 0), R8(c, 8), R8(c, 16), R8(c, 24)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more));
}
INLINE void multiply(float (&c)[64], const u32 (&a)[4], u64 b, u32 more) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %69, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;}"
        : R8(c, 0), R8(c, 8), R8(c, 16), R8(c, 24), R8(c, 32), R8(c, 40), R8(c, 48), R8(c, 56)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) attend_hopper(
    const u16* q,
#if JOINED
    const float* angles,
#endif
    const u16* k_cache, const u16* v_cache, u16* y, const u32* symbols) {
    extern __shared__ __align__(1024) char memory[];
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, g = lane >> 2, t = lane & 3;
    const u32 n = symbols[0], p = symbols[1], head = blockIdx.x, kv = head / (HEADS / KV_HEADS);
    // The longest rows first.
    const u32 from = (gridDim.y - 1 - blockIdx.y) * QUERIES, own = from + warp / 4 * OF_GROUP;
    const u32 end = p + (from + QUERIES < n ? from + QUERIES : n);
    u32 begin = 0;
#if WINDOW
    if (p + from >= WINDOW) begin = (p + from + 1 - WINDOW) / KEYS * KEYS;
#endif
    const u32 ring = (address(memory) + 1023) & ~1023u;
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
                const u32 to = ring + slot * STAGE + piece / 8 * SIDE + row * 128 + (((piece ^ row) & 7) << 4);
                fetch(to, k_cache + source, size);
                fetch(to + HALF, v_cache + source, size);
            }
        }
        commit();
    };
    for (u32 i = 0; i < STAGES - 1; i++) ask(begin + i * KEYS, i);

    // Rows g and g + 8 of the warp's 16 queries; those beyond the last are that one again.
    u32 rows[2];
    const u32 queries = ring + STAGES * STAGE + warp / 4 * (D / 64 * ASKED);
#pragma unroll
    for (int h = 0; h < 2; h++) rows[h] = from + warp * 16 + g + 8 * h;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const u32 row = rows[h] < n ? rows[h] : n - 1;
        const u32* source = (const u32*)(q + ((size_t)row * HEADS + head) * D) + t;
        u32 a[D / 16][2];
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            a[i][0] = source[i * 8];
            a[i][1] = source[i * 8 + 4];
        }
#if JOINED
        const float2* turn = (const float2*)(angles + (size_t)row * D) + t;
#pragma unroll
        for (int i = 0; i < D / 32; i++) {
#pragma unroll
            for (int s = 0; s < 2; s++) {
                const float2 cosine = turn[i * 8 + s * 4], sine = turn[D / 4 + i * 8 + s * 4];
                const u32 first = a[i][s], second = a[i + D / 32][s];
                a[i][s] = pack(low(first) * cosine.x - low(second) * sine.x, high(first) * cosine.y - high(second) * sine.y);
                a[i + D / 32][s] = pack(low(second) * cosine.x + low(first) * sine.x, high(second) * cosine.y + high(first) * sine.y);
            }
        }
#endif
        const u32 line = warp % 4 * 16 + g + 8 * h;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            const u32 to = queries + i / 8 * ASKED + line * 128 + (((i ^ line) & 7) << 4) + t * 4;
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(a[i / 2][i % 2]) : "memory");
        }
    }
    float top[2] = {-1e30f, -1e30f}, total[2] = {}, fade[2] = {1, 1}, o[D / 2] = {}, part[D / 2], s[KEYS / 2];
    // The chances as two planes of f16, which together are as good as f32.
    u32 chances[KEYS / 16][4], rest[KEYS / 16][4];
    u32 slot = 0;
    auto meet = [&]() {
        // What was written becomes visible to the tensor cores.
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
    };
    auto score = [&](u32 at) {
        const u32 keys = ring + at * STAGE;
        before_products();
#pragma unroll
        for (int i = 0; i < D / 16; i++) multiply(s, matrix(queries + i / 4 * ASKED) + i % 4 * 2, matrix(keys + i / 4 * SIDE) + i % 4 * 2, i);
        after_products();
    };
    auto weigh = [&](u32 at) {
        const u64 values = matrix(ring + at * STAGE + HALF);
        before_products();
#pragma unroll
        for (int j = 0; j < KEYS / 16; j++) {
            multiply(part, chances[j], values + j * 128, j);
            multiply(part, rest[j], values + j * 128, 1);
        }
        after_products();
    };
    // Chances of the keys from `at` on, and how much what is there before fades.
    auto chance = [&](u32 at) {
        // Element 4j + 2h + e is row g + 8h, key 8j + 2t + e.
        const u32 low_position = p + from + warp * 16;
        const bool masked = at + KEYS > low_position + 1 || at + KEYS > end || (WINDOW && at + WINDOW <= low_position + 15);
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            s[i] *= (float)(SCALE * 1.4426950408889634);
            if (masked) {
                const u32 key = at + i / 4 * 8 + t * 2 + (i & 1), position = p + rows[i >> 1 & 1];
                if (key > position || key >= end || (WINDOW && key + WINDOW <= position)) s[i] = -1e30f;
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float highest = top[h];
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++) highest = fmaxf(highest, fmaxf(s[4 * j + 2 * h], s[4 * j + 2 * h + 1]));
            highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
            highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
            fade[h] = exp2_(top[h] - highest);
            top[h] = highest;
            // Where no key was seen yet, all scores are the lowest.
            const float shift = highest == -1e30f ? 0 : highest;
            float sum = 0;
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    s[4 * j + 2 * h + e] = exp2_(s[4 * j + 2 * h + e] - shift);
                    sum += s[4 * j + 2 * h + e];
                }
            }
            total[h] = total[h] * fade[h] + sum;
        }
    };
    auto split = [&]() {
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            const u32 plane = pack(s[2 * i], s[2 * i + 1]);
            chances[i / 4][i % 4] = plane;
            rest[i / 4][i % 4] = pack(s[2 * i] - low(plane), s[2 * i + 1] - high(plane));
        }
    };
    // A group sees nothing of what is behind its last query, and has no queries behind the last.
    const u32 seen = own >= n ? begin : p + own + OF_GROUP;
    arrived<STAGES - 2>();
    meet();
    if (begin < seen) {
        score(0);
        products<0>(s);
        chance(begin);
        split();
    }
    for (u32 at = begin; at < end; at += KEYS) {
        const u32 ahead = slot + 1 < STAGES ? slot + 1 : 0;
        if (at + KEYS < end) {
            arrived<STAGES - 3>();
            meet();
        }
        ask(at + (STAGES - 1) * KEYS, slot > 0 ? slot - 1 : STAGES - 1);
        if (at >= seen) { slot = ahead; continue; }
        const float faded[2] = {fade[0], fade[1]};
        const bool more = at + KEYS < end && at + KEYS < seen;
        if (more) {
            // Scores of the next keys, while the values of these are added up.
            score(ahead);
            weigh(slot);
            products<1>(s);
            chance(at + KEYS);
        } else {
            weigh(slot);
        }
        products<0>(part);
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[i] = fmaf(o[i], faded[i >> 1 & 1], part[i]);
        if (more) split();
        slot = ahead;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        total[h] += __shfl_xor_sync(~0u, total[h], 1);
        total[h] += __shfl_xor_sync(~0u, total[h], 2);
        if (rows[h] >= n) continue;
        u32* to = (u32*)(y + ((size_t)rows[h] * HEADS + head) * D) + t;
#pragma unroll
        for (int i = 0; i < D / 8; i++) to[i * 4] = pack(o[4 * i + 2 * h] / total[h], o[4 * i + 2 * h + 1] / total[h]);
    }
}
