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

// Four elements of a row's sum, 256 apart, that are asked for together; behind the last one it is it again.
fn sums_from(row: u32, j: u32) -> vec4<f32> {
    let at = vec4<u32>(row) + min(vec4<u32>(j, j + 256u, j + 512u, j + 768u), vec4<u32>(K - 1u));
    let first = vec4<f32>(f32(a[at.x]), f32(a[at.y]), f32(a[at.z]), f32(a[at.w]));
    return first + vec4<f32>(f32(b[at.x]), f32(b[at.y]), f32(b[at.z]), f32(b[at.w]));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if group.x >= row_count(symbols) {
        return;
    }
    let row = group.x * K;
    var squares = 0.0;
    for (var j = lane; j < K; j += 1024u) {
        let v = sums_from(row, j);
        for (var i = 0u; i < 4u; i++) {
            if j + 256u * i < K {
                sum[row + j + 256u * i] = to_act(v[i]);
                squares = fma(v[i], v[i], squares);
            }
        }
    }
    let factor = inverse_root(sum_of(lane, squares) / f32(K) + EPS);
    for (var j = lane; j < K; j += 1024u) {
        let v = sums_from(row, j);
        for (var i = 0u; i < 4u; i++) {
            if j + 256u * i < K {
                y[row + j + 256u * i] = to_act(v[i] * factor * weight(j + 256u * i));
            }
        }
    }
}
