// y = (x - mean) * w / sqrt(mean of (x - mean)^2 + EPS) + b, one workgroup per row. The mean comes first and the squares
// of the centred values after it: the difference of two large sums would lose the variance of rows far from 0.
override K: u32; // row length
override EPS: f32;
override HAS_BIAS: u32 = 0u;
override B_DTYPE: u32 = 0u; // as W_DTYPE

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> w: array<u32>;
@group(0) @binding(2) var<storage, read> b: array<u32>; // not read unless HAS_BIAS
@group(0) @binding(3) var<storage, read_write> y: array<act>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

var<workgroup> sums: array<f32, 256>;

// The sum over all lanes. The last barrier lets the next call write again.
fn sum_of(lane: u32, value: f32) -> f32 {
    sums[lane] = value;
    workgroupBarrier();
    for (var step = 128u; step > 0u; step >>= 1u) {
        if lane < step {
            sums[lane] += sums[lane + step];
        }
        workgroupBarrier();
    }
    let total = sums[0];
    workgroupBarrier();
    return total;
}

// 1 / sqrt(v), with one step of Newton's method after the built-in function.
fn inverse_root(v: f32) -> f32 {
    let r = inverseSqrt(v);
    return r * fma(-0.5 * v * r, r, 1.5);
}

fn bias(at: u32) -> f32 {
    if HAS_BIAS == 0u {
        return 0.0;
    }
    if B_DTYPE == 0u {
        return bitcast<f32>(b[at]);
    }
    let half = select(b[at >> 1u], b[at >> 1u] >> 16u, (at & 1u) == 1u);
    return select(bitcast<f32>(half << 16u), unpack2x16float(half).x, B_DTYPE == 1u);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if group.x >= row_count(symbols) {
        return;
    }
    let row = group.x * K;
    var total = 0.0;
    for (var j = lane; j < K; j += 256u) {
        total += f32(x[row + j]);
    }
    let mean = sum_of(lane, total) / f32(K);
    var squares = 0.0;
    for (var j = lane; j < K; j += 256u) {
        let v = f32(x[row + j]) - mean;
        squares = fma(v, v, squares);
    }
    let factor = inverse_root(sum_of(lane, squares) / f32(K) + EPS);
    for (var j = lane; j < K; j += 256u) {
        let v = (f32(x[row + j]) - mean) * factor;
        y[row + j] = to_act(fma(v, weight_value(w[weight_word(j)], j), bias(j)));
    }
}
