// What becomes of a group's sums: gate, bias, and the way through shared memory to rows of the result.
#include "epilogue_gate.cuh"
#include "mma.cuh"
#include "schedule_gemm.cuh"

template <class P> struct GemmEpilogue {
    typedef GemmShape<P> H;
    typedef typename H::out_t out_t;
    const typename H::Bound& in;
    u32 group, warp, lane, thread, rows;
    u32 results, there; // the group's own memory, and what lies between it and that of the other group

    // The first group takes the upper rows, and gives the second the gates of the lower ones for the others of its own.
    INLINE void exchange(float (&c)[H::n / 2]) {
        named_barrier<256>(3);
#pragma unroll
        for (int i = 0; i < H::n / 4; i++) {
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(results + (i * 128 + thread) * 4), "f"(group ? c[i] : c[H::n / 4 + i]) : "memory");
        }
        named_barrier<256>(3);
        results ^= there;
#pragma unroll
        for (int i = 0; i < H::n / 4; i++) {
            float given;
            asm volatile("ld.shared.f32 %0, [%1];" : "=f"(given) : "r"(results + (i * 128 + thread) * 4) : "memory");
            c[i] = group ? silu_gate_fast(given, c[H::n / 4 + i]) : silu_gate_fast(c[i], given);
        }
    }
    INLINE void gate(float (&c)[H::n / 2]) const {
#pragma unroll
        for (int i = 0; i < H::n / 2; i += 4) {
            c[i] = silu_gate_fast(c[i], c[i + 2]);
            c[i + 1] = silu_gate_fast(c[i + 1], c[i + 3]);
        }
    }
    INLINE void add_bias(float (&c)[H::n / 2], typename H::Place at, u32 width) const {
        const void* bias = H::template part_of<H::bias, 1>(in, at.part);
#pragma unroll
        for (int h = 0; h < H::pieces; h++) {
            const u32 output = at.first + warp * (8 * H::pieces) + 8 * h + (lane >> 2);
            const float b = output < width ? element<P::bias_dtype>(bias, output) : 0;
#pragma unroll
            for (int i = 0; i < H::rows / 2; i += 4) {
                c[i + 2 * h] += b;
                c[i + 2 * h + 1] += b;
            }
        }
    }
    INLINE void store_f32(const float (&c)[H::n / 2], float* y, typename H::Place at, u32 first_row, u32 width) const {
        const u32 g = lane >> 2, t = lane & 3;
#pragma unroll
        for (int i = 0; i < H::rows / 2; i++) {
            const u32 row = first_row + i / 4 * 8 + t * 2 + (i & 1), output = at.first + warp * (8 * H::pieces) + (i >> 1 & 1) * 8 + g;
            if (row < rows && output < width && (i >> 1 & 1) < H::pieces) y[(size_t)row * width + output] = c[i];
        }
    }
    INLINE u32 place(u32 row, u32 piece) const {
        return results + row * H::out_row + ((piece ^ (H::pieces == 2 ? row & 7 : row >> 1 & 3)) << 4);
    }
    INLINE void store_f16(const float (&c)[H::n / 2], u16* y, typename H::Place at, u32 first_row, u32 width) const {
        asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
        // Four matrices of 8 outputs by 8 rows at a time, turned.
#pragma unroll
        for (int j = 0; j < H::rows / 8; j += 4 / H::pieces) {
            u32 v[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int from = 4 * (j + i / H::pieces) + i % H::pieces * 2;
                v[i] = pack(c[from], c[from + 1]);
            }
            const u32 quarter = lane >> 3;
            stmatrix_trans(place((j + quarter / H::pieces) * 8 + (lane & 7), warp * H::pieces + quarter % H::pieces), v);
        }
        asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
        const u32 piece = thread % (4 * H::pieces), output = at.first + piece * 8;
#pragma unroll
        for (u32 i = 0; i < H::rows; i += 32 / H::pieces) {
            const u32 row = i + thread / (4 * H::pieces);
            u32 w[4];
            read_chunk(w, place(row, piece));
            const Chunk v = {w[0], w[1], w[2], w[3]};
            if (first_row + row < rows && output < width) *(Chunk*)(y + (size_t)(first_row + row) * width + output) = v;
        }
    }
    INLINE void finish(float (&c)[H::n / 2], typename H::Place at, u32 first_row) {
        out_t* y = (out_t*)H::template part_of<H::y, 1>(in, at.part);
        const u32 width = H::width_of(at.part);
        if constexpr (H::halves) {
            first_row += group * H::rows;
            exchange(c);
            y = (out_t*)in.at[H::y];
        } else if constexpr (P::gated) {
            gate(c);
        }
        if constexpr (P::bias) add_bias(c, at, width);
        if constexpr (P::out_f32) store_f32(c, y, at, first_row, width);
        else store_f16(c, y, at, first_row, width);
        if constexpr (H::halves && !P::out_f32) results ^= there;
    }
};
