// What the RANKS ranks of a model have together, for rank RANK: y = x of rank 0 + x of rank 1 + … in f32, rounded one time, or,
// if GATHERS, the columns of rank 0, of rank 1, …. Every rank adds in this order, so that all have the same bits.
//
// If MEET, ranks meet in each other's memory: block b of every rank brings a part, tells all ranks so, and waits for theirs. It
// has two slots of its own in turn: whoever writes one for the second time has seen that all ranks have read the first, as they
// came to the meeting between. Blocks wait for those of their own number alone, so that a launch does not need all at once.
// Sums of few bytes go another way: every word is written to the memory of each other rank beside the number of the meeting, by
// which that rank sees that it is there. That takes one way between GPUs where a flag and a read behind it take three.
// Else the parts are inputs, on a device that runs all ranks, and nobody waits.
//
// The memory of a rank, by the words at which its parts begin: LATE_RANK (0 if none was late, else its number + 1), LATE_CALL,
// CALLS, EPOCHS (how often each block has met), FLAGS (how often each rank's blocks have told that they are there), SLOTS (of
// SLOT_BYTES each), NUMBERED (words with numbers, of each rank LEAST_BYTES of a block twice).
//
// Constants: those, BLOCKS; WAIT_MS: how long a rank waits for another; K: columns of a part; WIDE: f32, else f16; ROWS_N,
// ROWS_P, ROWS_S, ROWS_C: the rows; THREADS; LEAST_BYTES for which another block is worth its meeting.
#include "pipeline.cuh"

typedef Number<WIDE != 0> N;
typedef N::type T;
// Elements of a chunk.
#define VECTOR (16 / (u32)sizeof(T))
// Chunks that a thread reads before it goes on: reads of other GPUs take long.
#define AT_ONCE 4

struct Arguments {
#if MEET
    const void* x;
#endif
    // Of each rank: the memory in which it meets the others, or its part.
    u32* memory[RANKS];
    void* y;
    const u32* symbols;
};

#if MEET

INLINE u64 nanoseconds() {
    u64 time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}
INLINE void tell(u32* flag, u32 value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
INLINE u32 hear(const u32* flag) {
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}
INLINE u32 peek(const u32* at) {
    u32 value;
    asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

// Whether a rank that waits since then goes on without `other`: every so many turns it looks whether some rank was late.
INLINE bool gives_up(u32* own, u32 other, u32 turn, u64 since) {
    if (turn % 256 != 0) return false;
    if (peek(own + LATE_RANK) != 0) return true;
    if (nanoseconds() - since <= WAIT_MS * 1000000ull) return false;
    if (atomicCAS(own + LATE_RANK, 0u, other + 1) == 0) own[LATE_CALL] = peek(own + CALLS);
    return true;
}

// One more call, which the first block counts; how often this block has met.
INLINE u32 begin_call(const Arguments& a) {
    u32* own = a.memory[RANK];
    if (blockIdx.x == 0 && threadIdx.x == 0) own[CALLS] = peek(own + CALLS) + 1;
    const u32 epoch = peek(own + EPOCHS + blockIdx.x);
    // All threads have read it before one writes it.
    __syncthreads();
    return epoch;
}
INLINE void end_call(const Arguments& a, u32 epoch) {
    if (threadIdx.x == 0) a.memory[RANK][EPOCHS + blockIdx.x] = epoch;
}

// All threads of the block have written to their slot; behind it those of all ranks can be read. Once a rank was late nobody
// waits any more: the step ends, and the host is told by the words LATE_RANK and LATE_CALL.
INLINE void meet(const Arguments& a, u32 epoch) {
    __syncthreads();
    const u32 other = threadIdx.x;
    if (other < RANKS) {
        // What the other threads have written is seen by whoever sees the flag.
        __threadfence_system();
        tell(a.memory[other] + FLAGS + RANK * BLOCKS + blockIdx.x, epoch);
        u32* own = a.memory[RANK];
        const u64 since = nanoseconds();
        for (u32 turn = 1; (int)(hear(own + FLAGS + other * BLOCKS + blockIdx.x) - epoch) < 0; turn++) {
            if (gives_up(own, other, turn, since)) break;
        }
    }
    __syncthreads();
}

// The slot of this block in a rank's memory.
INLINE char* slot_of(u32* memory, u32 epoch) {
    return (char*)(memory + SLOTS) + ((epoch & 1) * BLOCKS + blockIdx.x) * (u64)SLOT_BYTES;
}
// Brings this block's elements `begin` to `end` of all ranks to where `part_of` finds them.
INLINE void exchange(const Arguments& a, u32 epoch, u32 begin, u32 end) {
    const u32 chunks = (end - begin) / VECTOR;
    const T* from = (const T*)a.x + begin;
    char* slot = slot_of(a.memory[RANK], epoch);
    u32 at = threadIdx.x;
    for (; at + (AT_ONCE - 1) * THREADS < chunks; at += AT_ONCE * THREADS) {
        Chunk part[AT_ONCE];
#pragma unroll
        for (u32 j = 0; j < AT_ONCE; j++) part[j] = load16(from + (u64)(at + j * THREADS) * VECTOR);
#pragma unroll
        for (u32 j = 0; j < AT_ONCE; j++) *((Chunk*)slot + at + j * THREADS) = part[j];
    }
    for (; at < chunks; at += THREADS) *((Chunk*)slot + at) = load16(from + (u64)at * VECTOR);
    for (u32 i = chunks * VECTOR + threadIdx.x; i < end - begin; i += THREADS) ((T*)slot)[i] = N::load(from + i);
    meet(a, epoch);
}
INLINE const T* part_of(const Arguments& a, u32 rank, u32 epoch, u32) {
    return (const T*)slot_of(a.memory[rank], epoch);
}

// The sum of a chunk of all ranks, in the order of the ranks: see `add`.
INLINE Chunk sum_of(const Chunk (&part)[RANKS]);

// Where this block finds, in the memory of a rank, what rank `sender` writes there.
INLINE uint4* numbered_of(u32* memory, u32 sender, u32 epoch) {
    return (uint4*)(memory + NUMBERED) + (((epoch & 1) * BLOCKS + blockIdx.x) * RANKS + sender) * (2 * LEAST_BYTES / 16);
}
// Two words of a chunk, each beside the number of the meeting; a half is written and read as one.
INLINE void write_numbered(uint4* at, u32 first, u32 second, u32 epoch) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(first), "r"(epoch), "r"(second), "r"(epoch) : "memory");
}
INLINE uint4 read_numbered(const uint4* at) {
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}
INLINE void await_numbered(const Arguments& a, const uint4* at, u32 sender, u32 epoch, u32& first, u32& second) {
    uint4 v = read_numbered(at);
    if (v.y != epoch || v.w != epoch) {
        const u64 since = nanoseconds();
        for (u32 turn = 1; v.y != epoch || v.w != epoch; turn++) {
            if (gives_up(a.memory[RANK], sender, turn, since)) break;
            v = read_numbered(at);
        }
    }
    first = v.x, second = v.z;
}
// The sums of elements `begin` to `end`, whole chunks of LEAST_BYTES at most.
INLINE void add_numbered(const Arguments& a, u32 epoch, u32 begin, u32 end) {
    for (u32 i = threadIdx.x; i < (end - begin) / VECTOR; i += THREADS) {
        const u64 at = begin + (u64)i * VECTOR;
        Chunk part[RANKS];
        part[RANK] = load16((const T*)a.x + at);
#pragma unroll
        for (u32 r = 0; r < RANKS; r++) {
            if (r == RANK) continue;
            uint4* to = numbered_of(a.memory[r], RANK, epoch) + 2 * i;
            write_numbered(to, part[RANK].x, part[RANK].y, epoch);
            write_numbered(to + 1, part[RANK].z, part[RANK].w, epoch);
        }
#pragma unroll
        for (u32 r = 0; r < RANKS; r++) {
            if (r == RANK) continue;
            const uint4* from = numbered_of(a.memory[RANK], r, epoch) + 2 * i;
            await_numbered(a, from, r, epoch, part[r].x, part[r].y);
            await_numbered(a, from + 1, r, epoch, part[r].z, part[r].w);
        }
        *(Chunk*)((T*)a.y + at) = sum_of(part);
    }
}

#else

INLINE u32 begin_call(const Arguments&) { return 0; }
INLINE void end_call(const Arguments&, u32) {}
INLINE void exchange(const Arguments&, u32, u32, u32) {}
INLINE const T* part_of(const Arguments& a, u32 rank, u32, u32 begin) { return (const T*)a.memory[rank] + begin; }

#endif

// The sum of a chunk of all ranks, in the order of the ranks.
INLINE Chunk sum_of(const Chunk (&part)[RANKS]) {
    float sum[8] = {};
#pragma unroll
    for (u32 r = 0; r < RANKS; r++) {
        const u32 words[4] = {part[r].x, part[r].y, part[r].z, part[r].w};
#pragma unroll
        for (u32 j = 0; j < VECTOR; j++) {
            const float v = WIDE ? __uint_as_float(words[j % 4]) : j % 2 ? high(words[j / 2]) : low(words[j / 2]);
            // Not 0 + v: a sum of negative zeros is one.
            sum[j] = r == 0 ? v : sum[j] + v;
        }
    }
    if constexpr (WIDE) {
        return {__float_as_uint(sum[0]), __float_as_uint(sum[1]), __float_as_uint(sum[2]), __float_as_uint(sum[3])};
    } else {
        return pack_eight(sum);
    }
}

// The sums of elements `begin` to `end`.
INLINE void add(const Arguments& a, u32 epoch, u32 begin, u32 end) {
    const u32 chunks = (end - begin) / VECTOR;
    T* y = (T*)a.y + begin;
    u32 i = threadIdx.x;
    for (; i + (AT_ONCE - 1) * THREADS < chunks; i += AT_ONCE * THREADS) {
        Chunk part[AT_ONCE][RANKS];
#pragma unroll
        for (u32 j = 0; j < AT_ONCE; j++)
#pragma unroll
            for (u32 r = 0; r < RANKS; r++) part[j][r] = load16(part_of(a, r, epoch, begin) + (u64)(i + j * THREADS) * VECTOR);
#pragma unroll
        for (u32 j = 0; j < AT_ONCE; j++) *(Chunk*)(y + (u64)(i + j * THREADS) * VECTOR) = sum_of(part[j]);
    }
    for (; i < chunks; i += THREADS) {
        Chunk part[RANKS];
#pragma unroll
        for (u32 r = 0; r < RANKS; r++) part[r] = load16(part_of(a, r, epoch, begin) + (u64)i * VECTOR);
        *(Chunk*)(y + (u64)i * VECTOR) = sum_of(part);
    }
    for (u32 i = chunks * VECTOR + threadIdx.x; i < end - begin; i += THREADS) {
        float sum = N::from(N::load(part_of(a, 0, epoch, begin) + i));
        for (u32 r = 1; r < RANKS; r++) sum += N::from(N::load(part_of(a, r, epoch, begin) + i));
        y[i] = N::to(sum);
    }
}

// Elements `begin` to `end` of each rank, beside those of the others.
INLINE void gather(const Arguments& a, u32 epoch, u32 begin, u32 end) {
    for (u32 r = 0; r < RANKS; r++) {
        const T* part = part_of(a, r, epoch, begin);
        T* y = (T*)a.y + r * K;
        if constexpr (K % VECTOR == 0) {
            for (u32 i = threadIdx.x; i < (end - begin) / VECTOR; i += THREADS) {
                const u32 at = begin + i * VECTOR;
                *(Chunk*)(y + (u64)(at / K) * (RANKS * K) + at % K) = load16(part + (u64)i * VECTOR);
            }
        } else {
            for (u32 i = threadIdx.x; i < end - begin; i += THREADS) {
                const u32 at = begin + i;
                y[(u64)(at / K) * (RANKS * K) + at % K] = N::load(part + i);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) meeting(const __grid_constant__ Arguments a) {
    wait_previous();
    launch_next();
    const u32 count = rows_of<ROWS_N, ROWS_P, ROWS_C, ROWS_S>(a.symbols) * K;
    // The other blocks end at once, on all ranks alike.
    const u32 needed = (u32)(((u64)count * sizeof(T) + LEAST_BYTES - 1) / LEAST_BYTES);
    const u32 blocks = needed < gridDim.x ? needed : gridDim.x;
    if (blockIdx.x >= blocks) return;
    // The elements of a block in a round of all blocks: whole chunks, and no more than its slot takes.
    const u32 most = SLOT_BYTES / sizeof(T), all = ((count + blocks - 1) / blocks + VECTOR - 1) / VECTOR * VECTOR;
    const u32 share = MEET && all > most ? most : all;
    u32 epoch = begin_call(a);
    for (u64 first = 0; first < count; first += (u64)share * blocks) {
        const u64 from = first + (u64)share * blockIdx.x;
        const u32 begin = from < count ? (u32)from : count;
        const u32 end = begin + share < count ? begin + share : count;
        epoch++;
#if MEET && !GATHERS
        // The same on all ranks, as all have as many elements.
        if (count % VECTOR == 0 && share * sizeof(T) <= LEAST_BYTES) {
            add_numbered(a, epoch, begin, end);
            continue;
        }
#endif
        exchange(a, epoch, begin, end);
        if constexpr (GATHERS) {
            gather(a, epoch, begin, end);
        } else {
            add(a, epoch, begin, end);
        }
    }
    end_call(a, epoch);
}
