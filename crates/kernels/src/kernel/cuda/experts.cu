// y = x * the transposed matrices of the chosen experts, for many rows, on tensor cores: y^T = w x^T. A place is a slot of a row; block
// (i, j) treats a run of outputs of the expert of tile j, and the places of that tile (see `gather.cu`).
//
// A warp has 16 outputs of each of two weights with GATED, y = silu(x w0) * (x w1), else 32 of one. Stages of weights and of the
// gathered rows of x go through a ring in shared memory. Words of 4 bits become f16 integers q - 8 in registers. Sums of 32
// products are scaled and added up in f32: no weight is rounded, and the tensor cores, whose own sums are cut off, add little.
//
// Constants: K; O, outputs of an expert; EXPERTS; SLOTS; SHARED: the slots of a row take the same x instead of a row each; FORMAT (1 f16,
// 4: integers of 4 bits in groups of 32 with f16 scales); GATED; DEPTH, the stages of the ring.
#define WARPS 8
#define THREADS (WARPS * 32)
#define PLACES 64                // of a tile at most
#define ROWS (WARPS * 32)        // weights' rows of a tile
#if GATED
#define OUTPUTS (WARPS * 16)     // of a tile
#else
#define OUTPUTS ROWS
#endif
#if FORMAT == 4
#define STEP 128                 // elements along K of a stage
#define SCALES (K / 32)
#define FEW (ROWS * 8)           // bytes of a stage's scales
#else
#define STEP 32
#define FEW 0
#endif
#define LINE 64                  // bytes of a row of weights in a stage
#define X_LINE (STEP * 2)
#define X_PIECES (STEP / 8)      // of 16 bytes
#define W_BYTES (ROWS * LINE)
#define X_BYTES (PLACES * X_LINE)
#define STAGE (W_BYTES + FEW + X_BYTES)
#define STEPS (K / STEP)

INLINE void mma(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
INLINE void matrices(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
INLINE void words_of(u32 (&w)[4], u32 at) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(at) : "memory");
}
// Where 16 bytes of a row lie, so that the same piece of eight rows is read from all banks.
INLINE u32 w_place(u32 row, u32 piece) { return row * LINE + ((piece ^ (row >> 1 & 3)) << 4); }
INLINE u32 x_place(u32 row, u32 piece) { return row * X_LINE + ((piece ^ (X_PIECES == 4 ? row >> 1 & 3 : row & 7)) << 4); }

#if FORMAT == 4
// Elements 2t and 2t + 1 of a word's 8, less 8, as f16: by way of 1024 + q and 1024 + 16 q. All of this is exact.
INLINE u32 pair(u32 word, u32 byte_t, u32 factors) {
    const u32 both = __byte_perm(word, 0, byte_t);
    u32 r;
    asm("{.reg .b32 v;\n\tlop3.b32 v, %1, 0x00f0000f, 0x64006400, 0xea;\n\t"
        "fma.rn.f16x2 %0, v, %2, %3;}" : "=r"(r) : "r"(both), "r"(factors), "r"(0xd480e408));
    return r;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 2) experts(const u16* x, const char* w0,
#if FORMAT == 4
    const u16* s0,
#endif
#if GATED
    const char* w1,
#if FORMAT == 4
    const u16* s1,
#endif
#endif
    const u32* order, const u32* tiles, u16* y, const u32* symbols) {
    extern __shared__ __align__(128) char memory[];
    __shared__ u32 places[PLACES];
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, g = lane >> 2, t = lane & 3;
    const u32 ring = address(memory), output = blockIdx.x * OUTPUTS;
    launch_next();
    wait_previous();
    u32 tile_count;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(tile_count) : "l"(tiles) : "memory");
    if (blockIdx.y >= tile_count) return;
    const Words tile = load16(tiles + (1 + blockIdx.y) * 4);
    const u32 expert = tile.x, count = tile.z, eights = (count + 7) / 8;
    if (thread < PLACES) {
        u32 place;
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(place) : "l"(order + tile.y + (thread < count ? thread : 0)) : "memory");
        places[thread] = place;
    }
    __syncthreads();
    if (expert >= EXPERTS) {
        for (u32 i = thread; i < count * OUTPUTS; i += THREADS) {
            const u32 at = output + i % OUTPUTS;
            if (at < O) y[(size_t)places[i / OUTPUTS] * O + at] = 0;
        }
        return;
    }

    // Each thread asks for a piece of every so many rows.
    constexpr u32 W_EACH = ROWS * 4 / THREADS, X_EACH = PLACES * X_PIECES / THREADS;
    constexpr size_t BYTES = FORMAT == 4 ? K / 2 : K * 2; // of a row of weights
    u32 w_from[W_EACH], x_from[X_EACH];
    // Output and weight of row i of a tile: 16 of each weight in a warp, or 32 of one. Rows behind the last repeat it.
    auto row_of = [&](u32 i) {
        const u32 at = GATED ? output + (i >> 5) * 16 + (i & 15) : output + i;
        return at < O ? at : O - 1;
    };
    const char* w = w0;
#if GATED
    if (thread / 4 & 16) w = w1;
#endif
    w += (size_t)expert * O * BYTES + (thread & 3) * 16;
#pragma unroll
    for (u32 i = 0; i < W_EACH; i++) {
        w_from[i] = row_of(i * (THREADS / 4) + thread / 4) * (u32)BYTES;
    }
#if FORMAT == 4
    const u16* s_from = s0;
#if GATED
    if (thread & 16) s_from = s1;
#endif
    s_from += ((size_t)expert * O + row_of(thread)) * SCALES;
#endif
#pragma unroll
    for (u32 i = 0; i < X_EACH; i++) {
        const u32 place = places[i * (THREADS / X_PIECES) + thread / X_PIECES];
        x_from[i] = SHARED ? place / SLOTS : place;
    }
    x += thread % X_PIECES * 8;
    u32 asked = 0, ask_slot = 0;
    auto ask = [&]() {
        if (asked < STEPS) {
            const u32 stage = ring + ask_slot * STAGE;
#pragma unroll
            for (u32 i = 0; i < W_EACH; i++) {
                fetch16(stage + w_place(i * (THREADS / 4) + thread / 4, thread & 3), w + w_from[i] + asked * LINE);
            }
#if FORMAT == 4
            fetch_few<8>(stage + W_BYTES + thread * 8, s_from + asked * (STEP / 32));
#endif
#pragma unroll
            for (u32 i = 0; i < X_EACH; i++) {
                const u32 row = i * (THREADS / X_PIECES) + thread / X_PIECES;
                const u16* from = x + (size_t)x_from[i] * K + asked * STEP;
                if (row < eights * 8) fetch16(stage + W_BYTES + FEW + x_place(row, thread % X_PIECES), from);
            }
        }
        asked++;
        if (++ask_slot == DEPTH) ask_slot = 0;
        commit();
    };
    for (u32 d = 0; d < DEPTH - 1; d++) ask();

    float c[2][PLACES / 8][4] = {};
    u32 slot = 0;
#if FORMAT == 4
    const u32 byte_t = 0x4040 | t << 8 | t;
    // 1 and 1/16, as something that the compiler does not know and so keeps in a register: the grid is flat.
    const u32 factors = 0x2c003c00 * gridDim.z;
#endif
    const u32 quarter = lane >> 3, eighth = lane & 7;
#pragma unroll 1
    for (u32 step = 0; step < STEPS; step++) {
        arrived<DEPTH - 2>();
        __syncthreads();
        ask();
        const u32 ws = ring + slot * STAGE, xs = ws + W_BYTES + FEW;
#if FORMAT == 4
        u32 few[2][2][2];
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(few[h][r][0]), "=r"(few[h][r][1])
                    : "r"(ws + W_BYTES + (warp * 32 + h * 16 + r * 8 + g) * 8) : "memory");
            }
#endif
#pragma unroll
        for (int q = 0; q < STEP / 32; q++) {
            u32 a[2][2][4];
#if FORMAT == 4
            float scale[2][2];
#pragma unroll
            for (int i = 0; i < 4; i++) scale[i >> 1][i & 1] = q & 1 ? high(few[i >> 1][i & 1][q >> 1]) : low(few[i >> 1][i & 1][q >> 1]);
#endif
#pragma unroll
            for (int h = 0; h < 2; h++) {
#if FORMAT == 4
                u32 top[4], bottom[4];
                words_of(top, ws + w_place(warp * 32 + h * 16 + g, q));
                words_of(bottom, ws + w_place(warp * 32 + h * 16 + 8 + g, q));
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    a[h][i / 2][i % 2 * 2] = pair(top[i], byte_t, factors);
                    a[h][i / 2][i % 2 * 2 + 1] = pair(bottom[i], byte_t, factors);
                }
#else
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    matrices(a[h][k], ws + w_place(warp * 32 + h * 16 + (quarter & 1) * 8 + eighth, k * 2 + (quarter >> 1)));
                }
#endif
            }
#pragma unroll
            for (int j = 0; j < PLACES / 8; j++) {
                if (j >= eights) break;
                u32 b[4];
                matrices(b, xs + x_place(j * 8 + eighth, q * 4 + quarter));
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    float sum[4] = {};
                    mma(sum, a[h][0][0], a[h][0][1], a[h][0][2], a[h][0][3], b[0], b[1]);
                    mma(sum, a[h][1][0], a[h][1][1], a[h][1][2], a[h][1][3], b[2], b[3]);
#pragma unroll
                    for (int i = 0; i < 4; i++) {
#if FORMAT == 4
                        c[h][j][i] = fmaf(sum[i], scale[h][i >> 1], c[h][j][i]);
#else
                        c[h][j][i] += sum[i];
#endif
                    }
                }
            }
        }
        if (++slot == DEPTH) slot = 0;
    }

    // Registers 2r + e of a thread are row g + 8r of 16 outputs, place 2t + e of 8.
#pragma unroll
    for (int j = 0; j < PLACES / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 place = j * 8 + t * 2 + (i & 1);
            if (place >= count) continue;
            u16* to = y + (size_t)places[place] * O;
#if GATED
            const u32 at = output + warp * 16 + (i >> 1) * 8 + g;
            const float gate = c[0][j][i];
            if (at < O) to[at] = to_half(gate / (1.0f + __expf(-gate)) * c[1][j][i]);
#else
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const u32 at = output + warp * 32 + h * 16 + (i >> 1) * 8 + g;
                if (at < O) to[at] = to_half(c[h][j][i]);
            }
#endif
        }
    }
}
