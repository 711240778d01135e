// Attention of rows of several texts whose keys and values lie in pages, with grouped heads, by products on tensor cores. A block
// takes a tile of rows of one text for a key/value head and the query heads that share it: 16 queries in all. Its warps take
// sixteens of keys in turn, and their sums are brought together in the end, as parts of keys are in Flash-Decoding.
//
// Which warp takes a key depends on the key's position alone. Rows of a product do not see each other, and a tile ends where
// positions reach a multiple of its rows, so that it never has keys beyond a row's own sixteen. The keys of a row are cut into
// chunks, whose number and length depend on its position alone. A warp adds up each chunk by itself, and the chunks one after the
// other. So a row has the same bits whatever rows are beside it, and whether one block has all chunks or each its own.
//
// Of few rows each tile is a cluster's, whose blocks have a chunk each. Else blocks have tiles of their own.
#include "mma.cuh"
#include "operands.cuh"

template <class P> struct PagedShape {
    static constexpr u32 warps = 4, threads = warps * 32, group = P::heads / P::kv_heads;
    static constexpr u32 padded = group > 8 ? 16 : group > 4 ? 8 : group > 2 ? 4 : group; // heads of a row of queries, with those that are none
    static constexpr u32 queries = 16 / padded;                                          // rows of a tile
    static constexpr u32 row = P::d * 2, pieces = P::d / 8, half = 16 * row, stage = 2 * half; // bytes of 16 keys, and of values
    static constexpr u32 at_once = 32 / pieces; // rows that one instruction of a warp fetches
    static constexpr u32 count = 8;
    static constexpr u32 chunks = 8, least = 16 * 16; // chunks of keys at most, and keys of one at least
    static_assert(P::cluster == 1 || P::cluster == chunks, "blocks have a chunk each");
    static INLINE u32 place(u32 line, u32 piece) { return line * row + ((piece ^ (line & 7)) << 4); }
};

template <class P> struct PagedOperands {
    const u16 *q, *k, *v;
    const u32 *positions, *texts, *pages;
    u16* y;
    const u32* symbols;
    INLINE explicit PagedOperands(const Bindings<PagedShape<P>::count>& in) {
        q = (const u16*)in.at[0], k = (const u16*)in.at[1], v = (const u16*)in.at[2];
        positions = (const u32*)in.at[3], texts = (const u32*)in.at[4], pages = (const u32*)in.at[5];
        y = (u16*)in.at[6], symbols = (const u32*)in.at[7];
    }
};

// The rows of a block, and the keys that they see.
template <class P> struct PagedTile {
    typedef PagedShape<P> H;
    u32 kv, first, rows, text, position, begin, chunk, end;
    // Without rows if another block has them.
    INLINE PagedTile(const PagedOperands<P>& in, u32 kv, u32 first) : kv(kv), first(first), rows(0) {
        const u32 n = in.symbols[0];
        text = in.texts[first], position = in.positions[first];
        if (first > 0 && position % H::queries != 0 && in.texts[first - 1] == text && in.positions[first - 1] + 1 == position) return;
        rows = 1;
        for (; rows < H::queries && first + rows < n; rows++) {
            const u32 next = position + rows;
            if (next % H::queries == 0 || in.texts[first + rows] != text || in.positions[first + rows] != next) break;
        }
        // What follows is the same for each row that could share the tile.
        const u32 lowest = position / H::queries * H::queries, whole = lowest + H::queries;
        begin = P::window > 0 && lowest >= P::window ? (lowest + 1 - P::window) / 16 * 16 : 0;
        chunk = ((whole - begin + 15) / 16 + H::chunks - 1) / H::chunks * 16;
        chunk = chunk < H::least ? H::least : chunk;
        end = position + rows;
    }
    // The row and the head of a query of the tile, and whether it is one.
    static INLINE u32 row_of(u32 query) { return query / H::padded; }
    static INLINE u32 head_of(u32 query) { return query % H::padded; }
    INLINE bool has(u32 query) const { return row_of(query) < rows && head_of(query) < H::group; }
    INLINE size_t place_of(u32 query) const {
        return ((size_t)(first + row_of(query)) * P::heads + kv * H::group + head_of(query)) * P::d;
    }
};

// A warp's ring of keys and values.
template <class P> struct PagedStream {
    typedef PagedShape<P> H;
    const PagedOperands<P>& in;
    const PagedTile<P>& tile;
    u32 ring, ask_at, end, ask_slot;
    // Asks for its next 16.
    INLINE void ask() {
        if (ask_at < end) {
            const u32 lane = threadIdx.x & 31, to = ring + ask_slot * H::stage, piece = lane % H::pieces;
#pragma unroll
            for (u32 i = 0; i < 16; i += H::at_once) {
                const u32 line = i + lane / H::pieces, key = ask_at + line, size = key < end ? 16 : 0;
                const u32 known = size ? key : end - 1;
                const u32 cached = in.pages[tile.text * P::blocks + known / P::page] * P::page + known % P::page;
                const size_t from = ((size_t)cached * P::kv_heads + tile.kv) * P::d + piece * 8;
                cp_async_16(to + H::place(line, piece), in.k + from, size);
                cp_async_16(to + H::half + H::place(line, piece), in.v + from, size);
            }
        }
        ask_at += H::warps * 16;
        if (++ask_slot == P::depth) ask_slot = 0;
        cp_async_commit();
    }
};

// What a warp has seen, of queries g and g + 8: the highest score, the total of the weights, and the weighted sum of the values.
template <class P> struct PagedSums {
    typedef PagedShape<P> H;
    u32 g, t, positions[2], q; // q: where the queries lie
    float top[2], total[2], fade[2], o[P::d / 8][4];

    INLINE PagedSums(const PagedTile<P>& tile, u32 q) : q(q), top{-1e30f, -1e30f}, total{}, fade{1, 1}, o{} {
        const u32 lane = threadIdx.x & 31;
        g = lane >> 2, t = lane & 3;
#pragma unroll
        for (int h = 0; h < 2; h++) positions[h] = tile.position + tile.row_of(g + 8 * h);
    }
    // Scores of the keys from `at` on become weights. Element e of s[j] is query g + 8 (e / 2), key 8j + 2t + e % 2.
    INLINE void weigh(float (&s)[2][4], u32 at) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float highest = top[h];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float& score = s[i >> 1][2 * h + (i & 1)];
                const u32 key = at + (i >> 1) * 8 + t * 2 + (i & 1);
                const bool seen = key <= positions[h] && (P::window == 0 || key + P::window > positions[h]);
                score = seen ? score * (float)(P::scale * 1.4426950408889634) : -1e30f;
                highest = fmaxf(highest, score);
            }
            highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
            highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
            fade[h] = exp2_(top[h] - highest);
            top[h] = highest;
            // Weights are up to 2^15 in the place of 1, as in `softmax.cuh`.
            const float shift = highest == -1e30f ? 0 : highest - 15;
            float sum = 0;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float& score = s[i >> 1][2 * h + (i & 1)];
                score = exp2_(score - shift);
                sum += score;
            }
            total[h] = total[h] * fade[h] + sum;
        }
    }
    // 16 keys from `at` on, which lie at `from`.
    INLINE void treat(u32 from, u32 at) {
        const u32 lane = threadIdx.x & 31;
        float s[2][4] = {};
#pragma unroll
        for (int i = 0; i < P::d / 16; i++) {
            u32 a[4], b[4];
            ldmatrix(a, q + H::place(lane & 15, i * 2 + (lane >> 4)));
            ldmatrix(b, from + H::place((lane >> 4) * 8 + (lane & 7), i * 2 + ((lane >> 3) & 1)));
            mma_f16(s[0], a, b[0], b[1]);
            mma_f16(s[1], a, b[2], b[3]);
        }
        weigh(s, at);
        // Weights as two planes of f16, which together are as good as f32.
        u32 weights[4], rest[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float x = s[i >> 1][2 * (i & 1)], y = s[i >> 1][2 * (i & 1) + 1];
            weights[i] = pack(x, y);
            rest[i] = pack(x - low(weights[i]), y - high(weights[i]));
        }
#pragma unroll
        for (int i = 0; i < P::d / 16; i++) {
            u32 b[4];
            ldmatrix_trans(b, from + H::half + H::place(((lane >> 3) & 1) * 8 + (lane & 7), i * 2 + (lane >> 4)));
            float part[2][4] = {};
            mma_f16(part[0], weights, b[0], b[1]);
            mma_f16(part[1], weights, b[2], b[3]);
            mma_f16(part[0], rest, b[0], b[1]);
            mma_f16(part[1], rest, b[2], b[3]);
            // Tensor cores round toward zero: they add up sixteens, ordinary additions the sixteens.
#pragma unroll
            for (int e = 0; e < 4; e++) {
                o[2 * i][e] = fmaf(o[2 * i][e], fade[e >> 1], part[0][e]);
                o[2 * i + 1][e] = fmaf(o[2 * i + 1][e], fade[e >> 1], part[1][e]);
            }
        }
    }
    // The totals of a query's lanes, brought together.
    INLINE void join_lanes() {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            total[h] += __shfl_xor_sync(~0u, total[h], 1);
            total[h] += __shfl_xor_sync(~0u, total[h], 2);
        }
    }
    // Begins a new chunk.
    INLINE void clear() {
#pragma unroll
        for (int h = 0; h < 2; h++) top[h] = -1e30f, total[h] = 0;
#pragma unroll
        for (int i = 0; i < P::d / 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) o[i][e] = 0;
    }
    // Leaves the sums of each query at `to`.
    INLINE void leave(float* to, float* tops, float* totals) const {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const u32 query = g + 8 * h;
            if (t == 0) { tops[query] = top[h]; totals[query] = total[h]; }
#pragma unroll
            for (int i = 0; i < P::d / 8; i++) {
                float* at = to + query * P::d + i * 8 + t * 2;
                at[0] = o[i][2 * h], at[1] = o[i][2 * h + 1];
            }
        }
    }
};

// What of a warp's sums fades when a chunk is added to them, and what of the chunk.
struct PagedFade {
    float sums, chunk;
    // `top` becomes the higher of both.
    INLINE PagedFade(float& top, float own) {
        const float highest = fmaxf(top, own);
        sums = exp2_(top - highest), chunk = exp2_(own - highest);
        top = highest;
    }
    INLINE float add(float sum, float own) const { return fmaf(sum, sums, own * chunk); }
};

// A warp's sums over several chunks.
template <class P> struct PagedTotals {
    float top[2], total[2], o[P::d / 8][4];

    INLINE void set(const PagedSums<P>& chunk) {
#pragma unroll
        for (int h = 0; h < 2; h++) top[h] = chunk.top[h], total[h] = chunk.total[h];
#pragma unroll
        for (int i = 0; i < P::d / 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) o[i][e] = chunk.o[i][e];
    }
    // Adds a chunk, which becomes the sum.
    INLINE void add_to(PagedSums<P>& chunk) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const PagedFade fade(top[h], chunk.top[h]);
            chunk.top[h] = top[h];
            chunk.total[h] = fade.add(total[h], chunk.total[h]);
#pragma unroll
            for (int i = 0; i < P::d / 8; i++)
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; e++) chunk.o[i][e] = fade.add(o[i][e], chunk.o[i][e]);
        }
    }
};

// The sums of a query's element over the warps of a block, one after the other.
template <class P> INLINE u16 add_warps(const float (&tops)[PagedShape<P>::warps], const float (&totals)[PagedShape<P>::warps], const float (&sums)[PagedShape<P>::warps]) {
    typedef PagedShape<P> H;
    float highest = -1e30f, sum = 0, weight = 0;
#pragma unroll
    for (int w = 0; w < H::warps; w++) highest = fmaxf(highest, tops[w]);
#pragma unroll
    for (int w = 0; w < H::warps; w++) {
        const float f = exp2_(tops[w] - highest);
        weight += f * totals[w];
        sum += f * sums[w];
    }
    return to_half(sum / weight);
}

// What the warps of a block leave to each other, and to the other blocks of the cluster.
template <class P> struct PagedShared {
    typedef PagedShape<P> H;
    float tops[H::warps][16], totals[H::warps][16];
    // Those of all blocks.
    float chunk_tops[P::cluster][H::warps][16], chunk_totals[P::cluster][H::warps][16];
};

// A warp's sums over the keys from `from` to `to`, chunk by chunk. Behind them the memory is free for other uses.
template <class P> INLINE void add_keys(PagedSums<P>& sums, const PagedOperands<P>& in, const PagedTile<P>& tile, char* memory, u32 from, u32 to) {
    typedef PagedShape<P> H;
    const u32 warp = threadIdx.x >> 5, ring = address(memory) + warp * (P::depth * H::stage);
    // Sixteens are dealt out by their positions.
    const u32 begin = from + (warp + H::warps - from / 16 % H::warps) % H::warps * 16;
    PagedStream<P> stream = {in, tile, ring, begin, to, 0};
    for (int d = 0; d < P::depth; d++) stream.ask();
    PagedTotals<P> totals;
    u32 slot = 0, at = begin;
    for (u32 border = from + tile.chunk;; border += tile.chunk) {
        for (const u32 most = border < to ? border : to; at < most; at += H::warps * 16) {
            cp_async_wait<P::depth - 1>();
            __syncwarp();
            sums.treat(ring + slot * H::stage, at);
            __syncwarp();
            stream.ask();
            if (++slot == P::depth) slot = 0;
        }
        sums.join_lanes();
        if (border > from + tile.chunk) totals.add_to(sums);
        if (border >= to) break;
        totals.set(sums);
        sums.clear();
    }
    cp_async_wait<0>();
    __syncthreads();
}

// Brings the queries of a tile to shared memory, with zeros for those that are none.
template <class P> INLINE void bring_queries(u32 to, const PagedOperands<P>& in, const PagedTile<P>& tile) {
    typedef PagedShape<P> H;
    for (u32 i = threadIdx.x; i < 16 * H::pieces; i += H::threads) {
        const u32 query = i / H::pieces, piece = i % H::pieces;
        const bool has = tile.has(query);
        cp_async_16(to + H::place(query, piece), in.q + tile.place_of(has ? query : 0) + piece * 8, has ? 16 : 0);
    }
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
}

// Rows of no text are zeros.
template <class P> INLINE void clear_tile(const PagedOperands<P>& in, const PagedTile<P>& tile) {
    typedef PagedShape<P> H;
    for (u32 i = threadIdx.x; i < 16 * P::d; i += H::threads) {
        if (tile.has(i / P::d)) in.y[tile.place_of(i / P::d) + i % P::d] = 0;
    }
}

// Gives what a block's warps have left of a tile that is its own.
template <class P> INLINE void finish_tile(const PagedOperands<P>& in, const PagedTile<P>& tile, const float* all, const PagedShared<P>& shared) {
    typedef PagedShape<P> H;
    __syncthreads();
    for (u32 i = threadIdx.x; i < 16 * P::d; i += H::threads) {
        const u32 query = i / P::d;
        if (!tile.has(query)) continue;
        float tops[H::warps], totals[H::warps], of[H::warps];
#pragma unroll
        for (int w = 0; w < H::warps; w++) tops[w] = shared.tops[w][query], totals[w] = shared.totals[w][query], of[w] = all[w * 16 * P::d + i];
        in.y[tile.place_of(query) + i % P::d] = add_warps<P>(tops, totals, of);
    }
}

// Gives what the blocks of a cluster have left of a tile, a chunk each. They share out the elements.
template <class P> INLINE void finish_shared_tile(const PagedOperands<P>& in, const PagedTile<P>& tile, const float* all, PagedShared<P>& shared, u32 rank, u32 chunks) {
    typedef PagedShape<P> H;
    cluster_sync();
    for (u32 i = threadIdx.x; i < chunks * H::warps * 16; i += H::threads) {
        const u32 block = i / (H::warps * 16), at = i % (H::warps * 16);
        (&shared.chunk_tops[0][0][0])[i] = read_of(block, address(&shared.tops[0][0] + at));
        (&shared.chunk_totals[0][0][0])[i] = read_of(block, address(&shared.totals[0][0] + at));
    }
    __syncthreads();
    for (u32 i = rank * H::threads + threadIdx.x; i < 16 * P::d; i += chunks * H::threads) {
        const u32 query = i / P::d;
        if (!tile.has(query)) continue;
        float tops[H::warps], totals[H::warps], of[H::warps], own[H::warps][H::chunks];
#pragma unroll
        for (int w = 0; w < H::warps; w++)
#pragma unroll
            for (u32 c = 0; c < H::chunks; c++)
                if (c < chunks) own[w][c] = read_of(c, address(all + w * 16 * P::d + i));
#pragma unroll
        for (int w = 0; w < H::warps; w++) {
            tops[w] = -1e30f, totals[w] = 0, of[w] = 0;
#pragma unroll
            for (u32 c = 0; c < H::chunks; c++) {
                if (c >= chunks) break;
                const PagedFade fade(tops[w], shared.chunk_tops[c][w][query]);
                totals[w] = fade.add(totals[w], shared.chunk_totals[c][w][query]);
                of[w] = fade.add(of[w], own[w][c]);
            }
        }
        in.y[tile.place_of(query) + i % P::d] = add_warps<P>(tops, totals, of);
    }
    // Nobody writes what others still read.
    cluster_sync();
}

template <class P> INLINE void paged_attention_block(const Bindings<PagedShape<P>::count>& bound) {
    extern __shared__ __align__(128) char memory[];
    __shared__ PagedShared<P> shared;
    // In registers they would leave too few for the sums of chunks.
    __shared__ __align__(128) u16 queries[16 * P::d];
    const PagedOperands<P> in(bound);
    wait_previous();
    launch_next();
    const u32 blocks = P::cluster > 1 ? cluster_blocks() : 1, rank = blockIdx.x % blocks, warp = threadIdx.x >> 5;
    const PagedTile<P> tile(in, blockIdx.x / blocks, blockIdx.y);
    if (tile.rows == 0) return;
    if (tile.text >= P::texts) {
        if (rank == 0) clear_tile(in, tile);
        return;
    }
    const u32 chunks = (tile.end - tile.begin + tile.chunk - 1) / tile.chunk;
    // Who has no chunk of several would only help to add them up.
    const bool shares = blocks > 1 && chunks > 1;
    if (rank >= (shares ? chunks : 1)) return;
    float* all = (float*)memory; // [warps][16][D]
    {
        const u32 begin = tile.begin + rank * tile.chunk, end = begin + tile.chunk;
        bring_queries(address(queries), in, tile);
        PagedSums<P> sums(tile, address(queries));
        add_keys(sums, in, tile, memory, begin, shares && end < tile.end ? end : tile.end);
        sums.leave(all + warp * 16 * P::d, shared.tops[warp], shared.totals[warp]);
    }
    if constexpr (P::cluster > 1) {
        if (shares) return finish_shared_tile(in, tile, all, shared, rank, chunks);
    }
    finish_tile(in, tile, all, shared);
}
