// Asynchronous copies and what waits for them: `cp.async` groups, barriers in shared memory for copies by tensor maps (TMA),
// clusters of blocks, and the kernels in front and behind (programmatic dependent launch).
#include "base.cuh"

// Copies 16 bytes, of which `size` come from memory and the rest are zero.
INLINE void cp_async_16(u32 to, const void* from, u32 size) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
}
INLINE void cp_async_16(u32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Copies 4, 8 or 16 bytes through the first cache.
template <int BYTES> INLINE void cp_async(u32 to, const void* from, u32 size = BYTES) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(size) : "memory");
}
INLINE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all but the last N groups of copies.
template <int N> INLINE void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Waits for the kernel before this one; lets the one behind start.
INLINE void wait_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
INLINE void launch_next() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The barrier of COUNT threads that have the number `id`.
template <u32 COUNT> INLINE void named_barrier(u32 id) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(COUNT) : "memory");
}

// Waits for all blocks of the cluster; what they wrote to shared memory is seen behind it.
INLINE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}
// The place of another block's shared memory that is `at` in one's own.
INLINE u32 map_shared(u32 at, u32 block) {
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block));
    return there;
}
// A number in another block's shared memory.
INLINE float read_of(u32 block, u32 at) {
    float f;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(f) : "r"(map_shared(at, block)) : "memory");
    return f;
}
// The blocks of a cluster; 1 for a block that is in none.
INLINE u32 cluster_blocks() {
    u32 count;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
    return count;
}

INLINE void mbarrier_init(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
INLINE void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
INLINE void mbarrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Arrives at the barrier of a block of the cluster.
INLINE void mbarrier_arrive(u32 barrier, u32 block) {
    asm volatile("{.reg .b32 r;\n\tmapa.shared::cluster.u32 r, %0, %1;\n\t"
        "mbarrier.arrive.shared::cluster.b64 _, [r];}" ::"r"(barrier), "r"(block) : "memory");
}
// The same behind what the thread wrote to shared memory of the cluster, and the wait that sees it.
INLINE void mbarrier_arrive_release(u32 barrier, u32 block) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(map_shared(barrier, block)) : "memory");
}
INLINE void mbarrier_wait_acquire(u32 barrier, u32 parity) {
    asm volatile("{.reg .pred p;\n"
        "again:\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n\t@!p bra again;}"
        ::"r"(barrier), "r"(parity) : "memory");
}
INLINE void mbarrier_wait(u32 barrier, u32 parity) {
    asm volatile("{.reg .pred p;\n"
        "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t@!p bra again;}"
        ::"r"(barrier), "r"(parity) : "memory");
}

// A tensor map, as the driver makes it.
struct alignas(64) TensorMap { u64 words[16]; };
// Brings the box of a tensor at element `k` of `row`; to both blocks of the cluster if `both`.
INLINE void tma_load(u32 to, const TensorMap* map, u32 k, u32 row, u32 barrier, bool both) {
    if (both) {
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
            " [%0], [%1, {%2, %3}], [%4], %5;"
            ::"r"(to), "l"(map), "r"(k), "r"(row), "r"(barrier), "h"((u16)3) : "memory");
    } else {
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%2, %3}], [%4];"
            ::"r"(to), "l"(map), "r"(k), "r"(row), "r"(barrier) : "memory");
    }
}
