// sum = a + b and y = sum * (OFFSET + w) / sqrt(mean(sum^2) + EPS), one workgroup per row. Lanes add up within their subgroup, so
// that they wait for each other once, and a lane keeps its first 16 sums for the second pass.
override K: u32; // row length
override EPS: f32;
override OFFSET: f32 = 0.0;
override HAS_WEIGHT: u32 = 1u;

const KEPT = 16u; // sums that a lane keeps

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

// The sum over the workgroup's subgroups of this size. Each subgroup adds up what all of them have.
fn sum_of_row(subgroup: u32, within: u32, size: u32, value: f32) -> f32 {
    let own = subgroupAdd(value);
    if within == 0u {
        sums[subgroup] = own;
    }
    workgroupBarrier();
    var total = 0.0;
    for (var s = within; s < 256u / size; s += size) {
        total += sums[s];
    }
    return subgroupAdd(total);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) within: u32,
    @builtin(subgroup_size) size: u32,
) {
    if group.x >= row_count(symbols) {
        return;
    }
    let row = group.x * K;
    var kept: array<f32, KEPT>;
    var squares = 0.0;
    for (var i = 0u; i < KEPT; i++) {
        let j = lane + 256u * i;
        if j < K {
            kept[i] = f32(a[row + j]) + f32(b[row + j]);
            sum[row + j] = to_act(kept[i]);
            squares = fma(kept[i], kept[i], squares);
        }
    }
    for (var j = lane + 256u * KEPT; j < K; j += 256u) {
        let v = f32(a[row + j]) + f32(b[row + j]);
        sum[row + j] = to_act(v);
        squares = fma(v, v, squares);
    }
    let factor = inverse_root(sum_of_row(subgroup, within, size, squares) / f32(K) + EPS);
    for (var i = 0u; i < KEPT; i++) {
        let j = lane + 256u * i;
        if j < K {
            y[row + j] = to_act(kept[i] * factor * weight(j));
        }
    }
    for (var j = lane + 256u * KEPT; j < K; j += 256u) {
        y[row + j] = to_act((f32(a[row + j]) + f32(b[row + j])) * factor * weight(j));
    }
}
