// y = x * w / sqrt(mean(x^2) + EPS), one workgroup per row.
override K: u32; // row length
override EPS: f32;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> w: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<act>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

var<workgroup> sums: array<f32, 256>;

// The sum over all lanes.
fn sum_of(lane: u32, value: f32) -> f32 {
    sums[lane] = value;
    workgroupBarrier();
    for (var step = 128u; step > 0u; step >>= 1u) {
        if lane < step {
            sums[lane] += sums[lane + step];
        }
        workgroupBarrier();
    }
    return sums[0];
}

// 1 / sqrt(v), with one step of Newton's method after the built-in function.
fn inverse_root(v: f32) -> f32 {
    let r = inverseSqrt(v);
    return r * fma(-0.5 * v * r, r, 1.5);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if group.x >= row_count(symbols) {
        return;
    }
    let row = group.x * K;
    var squares = 0.0;
    for (var j = lane; j < K; j += 256u) {
        let v = f32(x[row + j]);
        squares = fma(v, v, squares);
    }
    let factor = inverse_root(sum_of(lane, squares) / f32(K) + EPS);
    for (var j = lane; j < K; j += 256u) {
        y[row + j] = to_act(f32(x[row + j]) * factor * weight_value(w[weight_word(j)], j));
    }
}
