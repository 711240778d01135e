// sum = a + b and y = sum * (OFFSET + w) / sqrt(mean(sum^2) + EPS), one workgroup per row.
override K: u32; // row length
override EPS: f32;
override OFFSET: f32 = 0.0;
override HAS_WEIGHT: u32 = 1u;

@group(0) @binding(0) var<storage, read> a: array<act>;
@group(0) @binding(1) var<storage, read> b: array<act>;
@group(0) @binding(2) var<storage, read> w: array<u32>; // not read unless HAS_WEIGHT
@group(0) @binding(3) var<storage, read_write> sum: array<act>;
@group(0) @binding(4) var<storage, read_write> y: array<act>;
@group(0) @binding(5) var<uniform> symbols: Symbols;

// The factor of column j.
fn weight(j: u32) -> f32 {
    if HAS_WEIGHT == 0u {
        return 1.0;
    }
    return OFFSET + weight_value(w[weight_word(j)], j);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if group.x >= row_count(symbols) {
        return;
    }
    let row = group.x * K;
    var squares = 0.0;
    for (var j = lane; j < K; j += 256u) {
        let v = f32(a[row + j]) + f32(b[row + j]);
        sum[row + j] = to_act(v);
        squares = fma(v, v, squares);
    }
    let factor = inverse_root(sum_of(lane, squares) / f32(K) + EPS);
    for (var j = lane; j < K; j += 256u) {
        let v = f32(a[row + j]) + f32(b[row + j]);
        y[row + j] = to_act(v * factor * weight(j));
    }
}
