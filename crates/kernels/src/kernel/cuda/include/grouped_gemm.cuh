// y = x * the transposed matrices of the chosen experts, for many rows, on tensor cores: y^T = w x^T. A place is a slot of a row; block
// (i, j) treats a run of outputs of the expert of tile j, and the places of that tile (see `moe_permute.cu`).
//
// A warp has 16 outputs of each of two weights of a gated product, else 32 of one. Stages of weights and of the gathered rows of x
// go through a ring in shared memory. Codes of 4 bits become f16 integers q - 8 in registers. Sums of 32 products are scaled and added
// up in f32: no weight is rounded, and the tensor cores, whose own sums are cut off, add little.
#include "epilogue_gate.cuh"
#include "load_f16.cuh"
#include "load_int4.cuh"

// What follows from the constants of a problem P.
template <class P> struct GroupedShape {
    typedef typename P::Storage S;
    static constexpr u32 warps = 8, threads = warps * 32, places = 64; // places of a tile at most
    static constexpr u32 rows = warps * 32, outputs = P::gated ? warps * 16 : rows; // rows of weights, and outputs, of a tile
    static constexpr u32 line = 64, step = line * 8 / S::bits;         // bytes of a row of weights in a stage, and elements
    static constexpr u32 few = S::packed ? rows * 8 : 0;               // bytes of a stage's scales
    static constexpr u32 x_line = step * 2, x_pieces = step / 8;
    static constexpr u32 w_bytes = rows * line, x_bytes = places * x_line, stage = w_bytes + few + x_bytes;
    static constexpr u32 steps = P::k / step, scales = P::k / 32;
    // Places of the operands among the bindings.
    static constexpr u32 order = 1 + (P::gated ? 2 : 1) * S::arrays, tiles = order + 1, y = order + 2, count = order + 4;

    // Where 16 bytes of a row lie, so that the same piece of eight rows is read from all banks.
    static INLINE u32 w_place(u32 row, u32 piece) { return row * line + ((piece ^ (row >> 1 & 3)) << 4); }
    static INLINE u32 x_place(u32 row, u32 piece) { return row * x_line + ((piece ^ (x_pieces == 4 ? row >> 1 & 3 : row & 7)) << 4); }
};

// The operands. They are read where the kernel begins, so that the compiler can read them again at will.
template <class P> struct GroupedOperands {
    typedef GroupedShape<P> H;
    const u16* x;
    Weight weight[2];
    const u32 *order, *tiles;
    u16* y;

    INLINE explicit GroupedOperands(const Bindings<H::count>& in) {
        x = (const u16*)in.at[0];
        weight[0] = Weight::bound<H::S::arrays>(in.at, 1);
        weight[1] = P::gated ? Weight::bound<H::S::arrays>(in.at, 1 + P::gated * H::S::arrays) : weight[0];
        order = (const u32*)in.at[H::order], tiles = (const u32*)in.at[H::tiles];
        y = (u16*)in.at[H::y];
    }
};

// The ring: each thread asks for a piece of every so many rows.
template <class P> struct GroupedStream {
    typedef GroupedShape<P> H;
    typedef typename P::Storage S;
    static constexpr u32 W_EACH = H::rows * 4 / H::threads, X_EACH = H::places * H::x_pieces / H::threads;
    static constexpr size_t BYTES = S::bits == 4 ? P::k / 2 : P::k * 2; // of a row of weights
    const GroupedOperands<P>& in;
    u32 ring, expert, output, eights, x_from[X_EACH];
    u32 asked, ask_slot;

    // Output and weight of row i of a tile: 16 of each weight in a warp, or 32 of one. Rows behind the last repeat it.
    static INLINE u32 row_of(u32 output, u32 i) {
        const u32 at = P::gated ? output + (i >> 5) * 16 + (i & 15) : output + i;
        return at < P::o ? at : P::o - 1;
    }
    INLINE GroupedStream(const GroupedOperands<P>& in, u32 ring, u32 expert, u32 output, u32 eights, const u32* places)
        : in(in), ring(ring), expert(expert), output(output), eights(eights), asked(0), ask_slot(0) {
        const u32 thread = threadIdx.x;
#pragma unroll
        for (u32 i = 0; i < X_EACH; i++) {
            const u32 place = places[i * (H::threads / H::x_pieces) + thread / H::x_pieces];
            x_from[i] = P::shared ? place / P::slots : place;
        }
    }
    // Asks for the next stage.
    INLINE void ask() {
        const u32 thread = threadIdx.x;
        if (asked < H::steps) {
            const u32 stage = ring + ask_slot * H::stage;
            // Addresses are computed anew for every stage: registers are scarce.
            u32 which = expert, first = output, piece = thread % H::x_pieces;
            asm volatile("" : "+r"(which), "+r"(first), "+r"(piece));
            const char* w = P::gated && thread / 4 & 16 ? in.weight[1].codes : in.weight[0].codes;
            w += (size_t)which * P::o * BYTES + (thread & 3) * 16;
#pragma unroll
            for (u32 i = 0; i < W_EACH; i++) {
                const u32 row = i * (H::threads / 4) + thread / 4, from = row_of(first, row) * (u32)BYTES;
                cp_async_16(stage + H::w_place(row, thread & 3), w + from + asked * H::line);
            }
            if constexpr (S::packed) {
                const u16* s = (const u16*)(P::gated && thread & 16 ? in.weight[1].scales : in.weight[0].scales);
                s += ((size_t)which * P::o + row_of(first, thread)) * H::scales;
                cp_async<8>(stage + H::w_bytes + thread * 8, s + asked * (H::step / 32));
            }
            const u16* x = in.x + piece * 8;
#pragma unroll
            for (u32 i = 0; i < X_EACH; i++) {
                const u32 row = i * (H::threads / H::x_pieces) + thread / H::x_pieces;
                const u16* from = x + (size_t)x_from[i] * P::k + asked * H::step;
                if (row < eights * 8) cp_async_16(stage + H::w_bytes + H::few + H::x_place(row, thread % H::x_pieces), from);
            }
        }
        asked++;
        if (++ask_slot == P::depth) ask_slot = 0;
        cp_async_commit();
    }
};

// The sums of a warp: registers 2r + e of a thread are row g + 8r of 16 outputs, place 2t + e of 8.
template <class P> struct GroupedProduct {
    typedef GroupedShape<P> H;
    typedef typename P::Storage S;
    u32 lane, warp, g, t, eights, byte_t, factors;
    u32 few[2][2][2];
    float c[2][H::places / 8][4];

    INLINE explicit GroupedProduct(u32 eights) : eights(eights), c{} {
        lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
        if constexpr (S::packed) byte_t = S::byte_of(t), factors = S::factors();
    }
    INLINE void load_scales(u32 ws) {
        if constexpr (S::packed) {
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(few[h][r][0]), "=r"(few[h][r][1])
                        : "r"(ws + H::w_bytes + (warp * 32 + h * 16 + r * 8 + g) * 8) : "memory");
                }
        }
    }
    // Weights of 32 elements for two products of 16.
    INLINE void load(u32 (&a)[2][4], u32 ws, int h, int q) const {
        if constexpr (S::packed) {
            u32 top[4], bottom[4];
            read_chunk(top, ws + H::w_place(warp * 32 + h * 16 + g, q));
            read_chunk(bottom, ws + H::w_place(warp * 32 + h * 16 + 8 + g, q));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                a[i / 2][i % 2 * 2] = S::pair(top[i], byte_t, factors);
                a[i / 2][i % 2 * 2 + 1] = S::pair(bottom[i], byte_t, factors);
            }
        } else {
            const u32 quarter = lane >> 3, eighth = lane & 7;
#pragma unroll
            for (int k = 0; k < 2; k++) {
                ldmatrix(a[k], ws + H::w_place(warp * 32 + h * 16 + (quarter & 1) * 8 + eighth, k * 2 + (quarter >> 1)));
            }
        }
    }
    // Adds the products of 32 elements.
    INLINE void multiply(u32 ws, u32 xs, int q) {
        const u32 quarter = lane >> 3, eighth = lane & 7;
        u32 a[2][2][4];
        float scale[2][2];
        if constexpr (S::packed) {
#pragma unroll
            for (int i = 0; i < 4; i++) scale[i >> 1][i & 1] = q & 1 ? high(few[i >> 1][i & 1][q >> 1]) : low(few[i >> 1][i & 1][q >> 1]);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) load(a[h], ws, h, q);
#pragma unroll
        for (int j = 0; j < H::places / 8; j++) {
            if (j >= eights) break;
            u32 b[4];
            ldmatrix(b, xs + H::x_place(j * 8 + eighth, q * 4 + quarter));
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float sum[4] = {};
                mma_f16(sum, a[h][0], b[0], b[1]);
                mma_f16(sum, a[h][1], b[2], b[3]);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    if constexpr (S::packed) c[h][j][i] = fmaf(sum[i], scale[h][i >> 1], c[h][j][i]);
                    else c[h][j][i] += sum[i];
                }
            }
        }
    }
    INLINE void store(u16* y, const u32* places, u32 count, u32 output) const {
#pragma unroll
        for (int j = 0; j < H::places / 8; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const u32 place = j * 8 + t * 2 + (i & 1);
                if (place >= count) continue;
                u16* to = y + (size_t)places[place] * P::o;
                if constexpr (P::gated) {
                    const u32 at = output + warp * 16 + (i >> 1) * 8 + g;
                    if (at < P::o) to[at] = to_half(silu_gate(c[0][j][i], c[1][j][i]));
                } else {
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const u32 at = output + warp * 32 + h * 16 + (i >> 1) * 8 + g;
                        if (at < P::o) to[at] = to_half(c[h][j][i]);
                    }
                }
            }
        }
    }
};

template <class P> INLINE void grouped_gemm_block(const Bindings<GroupedShape<P>::count>& bound) {
    typedef GroupedShape<P> H;
    extern __shared__ __align__(128) char memory[];
    __shared__ u32 places[H::places];
    const u32 thread = threadIdx.x, output = blockIdx.x * H::outputs;
    const GroupedOperands<P> in(bound);
    launch_next();
    wait_previous();
    if (blockIdx.y >= load4(in.tiles)) return;
    const Chunk tile = load16(in.tiles + (1 + blockIdx.y) * 4);
    const u32 expert = tile.x, count = tile.z, eights = (count + 7) / 8;
    if (thread < H::places) places[thread] = load4(in.order + tile.y + (thread < count ? thread : 0));
    __syncthreads();
    // One that does not exist gives zeros.
    if (expert >= P::experts) {
        for (u32 i = thread; i < count * H::outputs; i += H::threads) {
            const u32 at = output + i % H::outputs;
            if (at < P::o) in.y[(size_t)places[i / H::outputs] * P::o + at] = 0;
        }
        return;
    }
    GroupedStream<P> stream(in, address(memory), expert, output, eights, places);
    for (u32 d = 0; d < P::depth - 1; d++) stream.ask();
    GroupedProduct<P> product(eights);
    u32 slot = 0;
#pragma unroll 1
    for (u32 step = 0; step < H::steps; step++) {
        cp_async_wait<P::depth - 2>();
        __syncthreads();
        stream.ask();
        const u32 ws = stream.ring + slot * H::stage, xs = ws + H::w_bytes + H::few;
        product.load_scales(ws);
#pragma unroll
        for (int q = 0; q < H::step / 32; q++) product.multiply(ws, xs, q);
        if (++slot == P::depth) slot = 0;
    }
    product.store(in.y, places, count, output);
}
