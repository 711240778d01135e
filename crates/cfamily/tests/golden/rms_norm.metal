// language: metal3.0
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size1;
    uint size2;
    uint size3;
};

struct Symbols {
    uint n;
    uint p;
    uint s;
    uint reserved;
};
typedef half act;
struct type_2 {
    float inner[256];
};
typedef act type_3[1];
typedef uint type_4[1];
constant uint ROWS_N = 1u;
constant uint ROWS_P = 0u;
constant uint ROWS_S = 0u;
constant uint ROWS_C = 0u;
constant uint W_DTYPE = 1u;
constant uint TEAM = 256u;
constant uint K = 96u;
constant float EPS = 0.00001;
constant float OFFSET = 0.0;
constant uint HAS_WEIGHT = 1u;
constant uint W_RUNS = 1u;

uint row_count(
    Symbols s
) {
    return (((ROWS_N * s.n) + (ROWS_P * s.p)) + (ROWS_S * s.s)) + ROWS_C;
}

float round_to_half(
    float v
) {
    uint bits = as_type<uint>(v);
    float rounded = as_type<float>(((bits + 4095u) + ((bits >> 13u) & 1u)) & 4294959104u);
    float tiny = metal::rint(v * 16777216.0) * 0.000000059604645;
    bool is_nan = (bits & 2147483647u) > 2139095040u;
    return is_nan ? v : ((metal::abs(v) < 0.000061035156) ? tiny : rounded);
}

act to_act(
    float v_1
) {
    float _e1 = round_to_half(v_1);
    return static_cast<half>(_e1);
}

uint weight_word(
    uint e
) {
    return false ? e : (e >> 1u);
}

float weight_value(
    uint word,
    uint e_1
) {
    if (false) {
        return as_type<float>(word);
    }
    uint half_ = ((e_1 & 1u) == 1u) ? (word >> 16u) : word;
    if (true) {
        return float2(as_type<half2>(half_)).x;
    }
    return as_type<float>(half_ << 16u);
}

uint naga_mod(uint lhs, uint rhs) {
    return lhs % metal::select(rhs, 1u, rhs == 0u);
}

uint naga_div(uint lhs, uint rhs) {
    return lhs / metal::select(rhs, 1u, rhs == 0u);
}

float sum_of(
    uint lane_1,
    float value,
    threadgroup type_2& sums
) {
    uint step = 128u;
    sums.inner[metal::min(unsigned(lane_1), 255u)] = value;
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    uint2 loop_bound = uint2(4294967295u);
    bool loop_init = true;
    while(true) {
        if (metal::all(loop_bound == uint2(0u))) { break; }
        loop_bound -= uint2(loop_bound.y == 0u, 1u);
        if (!loop_init) {
            uint _e25 = step;
            step = _e25 >> 1u;
        }
        loop_init = false;
        uint _e9 = step;
        if (_e9 > 0u) {
        } else {
            break;
        }
        {
            uint _e14 = step;
            if (naga_mod(lane_1, TEAM) < _e14) {
                float _e18 = sums.inner[metal::min(unsigned(lane_1), 255u)];
                uint _e20 = step;
                float _e23 = sums.inner[metal::min(unsigned(lane_1 + _e20), 255u)];
                sums.inner[metal::min(unsigned(lane_1), 255u)] = _e18 + _e23;
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        }
    }
    float total = sums.inner[metal::min(unsigned(naga_div(lane_1, TEAM) * TEAM), 255u)];
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    return total;
}

float inverse_root(
    float v_2
) {
    float r = metal::rsqrt(v_2);
    return r * metal::fma((-0.5 * v_2) * r, r, 1.5);
}

float weight(
    uint run,
    uint j_2,
    device type_4 const& w,
    constant _mslBufferSizes& _buffer_sizes
) {
    if (false) {
        return 1.0;
    }
    uint at = (naga_mod(run, W_RUNS) * K) + j_2;
    uint _e14 = weight_word(at);
    uint _e16 = w[metal::min(unsigned(_e14), (_buffer_sizes.size2 - 0 - 4) / 4)];
    float _e17 = weight_value(_e16, at);
    return OFFSET + _e17;
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, uint lane [[thread_index_in_threadgroup]]
, threadgroup type_2& sums
, device type_3 const& x [[buffer(0)]]
, device type_4 const& w [[buffer(1)]]
, device type_3& y [[buffer(2)]]
, constant Symbols& symbols [[buffer(3)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(4)]]
) {
    if (lane == 0u) {
        sums = {};
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    float squares = 0.0;
    uint j = {};
    uint j_1 = {};
    uint run_1 = (group.x * 1u) + naga_div(lane, TEAM);
    uint first = run_1 * K;
    Symbols _e16 = symbols;
    uint _e17 = row_count(_e16);
    uint end = (run_1 < _e17) ? K : 0u;
    j = naga_mod(lane, TEAM);
    uint2 loop_bound_1 = uint2(4294967295u);
    bool loop_init_1 = true;
    while(true) {
        if (metal::all(loop_bound_1 == uint2(0u))) { break; }
        loop_bound_1 -= uint2(loop_bound_1.y == 0u, 1u);
        if (!loop_init_1) {
            uint _e35 = j;
            j = _e35 + TEAM;
        }
        loop_init_1 = false;
        uint _e25 = j;
        if (_e25 < end) {
        } else {
            break;
        }
        {
            uint _e28 = j;
            act _e31 = x[metal::min(unsigned(first + _e28), (_buffer_sizes.size1 - 0 - 2) / 2)];
            float v_3 = static_cast<float>(_e31);
            float _e33 = squares;
            squares = metal::fma(v_3, v_3, _e33);
        }
    }
    float _e38 = squares;
    float _e39 = sum_of(lane, _e38, sums);
    float _e46 = inverse_root((_e39 / 96.0) + EPS);
    j_1 = naga_mod(lane, TEAM);
    uint2 loop_bound_2 = uint2(4294967295u);
    bool loop_init_2 = true;
    while(true) {
        if (metal::all(loop_bound_2 == uint2(0u))) { break; }
        loop_bound_2 -= uint2(loop_bound_2.y == 0u, 1u);
        if (!loop_init_2) {
            uint _e67 = j_1;
            j_1 = _e67 + TEAM;
        }
        loop_init_2 = false;
        uint _e50 = j_1;
        if (_e50 < end) {
        } else {
            break;
        }
        {
            uint _e53 = j_1;
            uint _e57 = j_1;
            act _e60 = x[metal::min(unsigned(first + _e57), (_buffer_sizes.size1 - 0 - 2) / 2)];
            uint _e63 = j_1;
            float _e64 = weight(run_1, _e63, w, _buffer_sizes);
            act _e66 = to_act((static_cast<float>(_e60) * _e46) * _e64);
            y[metal::min(unsigned(first + _e53), (_buffer_sizes.size3 - 0 - 2) / 2)] = _e66;
        }
    }
    return;
}
