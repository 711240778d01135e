// language: metal3.0
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size0;
    uint size1;
};

struct Pair {
    metal::packed_float3 left;
    float right;
};
typedef Pair type_4[1];
struct Table {
    metal::atomic_uint count;
    char _pad1[12];
    type_4 rows;
};
typedef metal::half4 type_6[1];
struct type_8 {
    float inner[64];
};
struct type_11 {
    uint inner[3];
};

float mixed(
    thread float& p,
    float by,
    thread uint& seed
) {
    uint _e4 = seed;
    seed = (_e4 * 1664525u) + 1013904223u;
    float _e9 = p;
    p = _e9 + by;
    float _e11 = p;
    uint _e13 = seed;
    return _e11 * static_cast<float>(_e13 >> 16u);
}
uint naga_mod(uint lhs, uint rhs) {
    return lhs % metal::select(rhs, 1u, rhs == 0u);
}

uint naga_div(uint lhs, uint rhs) {
    return lhs / metal::select(rhs, 1u, rhs == 0u);
}


struct main_Input {
};
[[max_total_threads_per_threadgroup(64)]] kernel void main_(
  uint lane [[thread_index_in_threadgroup]]
, metal::uint3 group [[threadgroup_position_in_grid]]
, device Table& table [[buffer(0)]]
, device type_6& halves [[buffer(1)]]
, constant metal::float3x3& turn [[buffer(2)]]
, threadgroup type_8& tile
, constant _mslBufferSizes& _buffer_sizes [[buffer(3)]]
) {
    uint seed = 7u;
    if (lane == 0u) {
        tile = {};
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    float own = {};
    uint i = 0u;
    type_11 words = {};
    float _e6 = table.rows[metal::min(unsigned(lane), (_buffer_sizes.size0 - 16 - 16) / 16)].right;
    own = _e6;
    metal::float3x3 _e9 = turn;
    metal::float3 _e14 = table.rows[metal::min(unsigned(lane), (_buffer_sizes.size0 - 16 - 16) / 16)].left;
    metal::float3 turned = _e9 * _e14;
    uint2 loop_bound = uint2(4294967295u);
    bool loop_init = true;
    while(true) {
        if (metal::all(loop_bound == uint2(0u))) { break; }
        loop_bound -= uint2(loop_bound.y == 0u, 1u);
        if (!loop_init) {
            uint _e32 = i;
            i = _e32 + 1u;
        }
        loop_init = false;
        uint _e18 = i;
        if (_e18 < 4u) {
        } else {
            break;
        }
        {
            uint _e21 = i;
            if (_e21 == 2u) {
                continue;
            }
            float _e24 = own;
            uint _e25 = i;
            float _e29 = mixed(own, turned[metal::min(unsigned(naga_mod(_e25, 3u)), 2u)], seed);
            own = _e24 + _e29;
        }
    }
    float _e36 = own;
    tile.inner[metal::min(unsigned(lane), 63u)] = _e36;
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    float _e39 = own;
    words = type_11 {{as_type<uint>(half2(turned.xy)), metal::pack_float_to_snorm4x8(metal::float4(turned, _e39)), metal::popcount(lane)}};
    switch(naga_mod(lane, 4u)) {
        case 0u: {
            words.inner[metal::min(unsigned(naga_mod(lane, 3u)), 2u)] = 1u;
            break;
        }
        case 1u:
        case 2u: {
            uint _e52 = words.inner[1];
            words.inner[1] = naga_div(_e52, lane);
            break;
        }
        default: {
            break;
        }
    }
    float _e54 = own;
    float unnamed = metal::simd_sum(_e54);
    float _e56 = own;
    float unnamed_1 = metal::simd_shuffle_xor(_e56, 1u);
    float total = unnamed + unnamed_1;
    uint _e63 = words.inner[0];
    uint _e65 = words.inner[1];
    uint _e68 = words.inner[2];
    uint _e70 = metal::atomic_fetch_add_explicit(&table.count, (_e63 + _e65) + _e68, metal::memory_order_relaxed);
    if (_e70 == 0u) {
        table.rows[metal::min(unsigned((1 + (_buffer_sizes.size0 - 16 - 16) / 16) - 1u), (_buffer_sizes.size0 - 16 - 16) / 16)] = Pair {turned, total};
    }
    metal::half4 _e86 = halves[metal::min(unsigned(lane), (_buffer_sizes.size1 - 0 - 8) / 8)];
    float _e89 = own;
    halves[metal::min(unsigned(lane), (_buffer_sizes.size1 - 0 - 8) / 8)] = (_e86 * 2.0h) + static_cast<metal::half4>(metal::float4(_e89));
    return;
}
