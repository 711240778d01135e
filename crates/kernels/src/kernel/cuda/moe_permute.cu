// The places where each expert was chosen, one expert behind the other, and tiles of TILE of them at most. A place is a slot of a
// row: place p is slot p % SLOTS of row p / SLOTS. One block.
//
// `tiles` begins with their number; four words each follow: the expert, where its first place stands in `order`, how many they are,
// and 0. Places of an expert that does not exist come last, as those of expert EXPERTS. In which order the places of an expert
// stand is left to chance; nothing depends on it.
//
// Constants: EXPERTS; SLOTS; TILE; ROWS_N, ROWS_P, ROWS_C: the rows.
#include "pipeline.cuh"

#define THREADS 1024
#define COUNTED (EXPERTS + 1)

// The sums of what lies in front of each of the numbers that a block's threads hold, and of all.
INLINE u32 in_front(u32 own, u32 (&parts)[32], u32& all) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u32 sum = own;
#pragma unroll
    for (u32 o = 1; o < 32; o <<= 1) {
        const u32 other = __shfl_up_sync(~0u, sum, o);
        if (lane >= o) sum += other;
    }
    __syncthreads();
    if (lane == 31) parts[warp] = sum;
    __syncthreads();
    u32 before = 0;
    all = 0;
#pragma unroll 1
    for (u32 w = 0; w < THREADS / 32; w++) {
        if (w < warp) before += parts[w];
        all += parts[w];
    }
    return before + sum - own;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) moe_permute(const u32* experts, u32* order, u32* tiles, const u32* symbols) {
    __shared__ u32 counts[COUNTED], parts[32];
    launch_next();
    const u32 places = rows_of<ROWS_N, ROWS_P, ROWS_C>(symbols) * SLOTS, thread = threadIdx.x;
    for (u32 e = thread; e < COUNTED; e += THREADS) counts[e] = 0;
    __syncthreads();
    wait_previous();
    auto expert_of = [&](u32 place) {
        const u32 e = load4(experts + place);
        return e < EXPERTS ? e : EXPERTS;
    };
    for (u32 place = thread; place < places; place += THREADS) atomicAdd(&counts[expert_of(place)], 1u);
    __syncthreads();
    u32 first = 0, tile = 0;
    for (u32 base = 0; base < COUNTED; base += THREADS) {
        const u32 e = base + thread, count = e < COUNTED ? counts[e] : 0;
        u32 all, all_tiles;
        const u32 start = first + in_front(count, parts, all), of_expert = (count + TILE - 1) / TILE;
        const u32 at = tile + in_front(of_expert, parts, all_tiles);
        for (u32 i = 0; i < of_expert; i++) {
            const u32 left = count - i * TILE;
            Chunk words = {e, start + i * TILE, left < TILE ? left : TILE, 0};
            ((Chunk*)tiles)[1 + at + i] = words;
        }
        if (e < COUNTED) counts[e] = start;
        first += all;
        tile += all_tiles;
    }
    if (thread == 0) tiles[0] = tile;
    __syncthreads();
    for (u32 place = thread; place < places; place += THREADS) order[atomicAdd(&counts[expert_of(place)], 1u)] = place;
}
