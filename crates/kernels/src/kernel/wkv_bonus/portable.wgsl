// y = (the sum over a head of r u k) v, one workgroup per row and head.
override K: u32; // row length: heads * HEAD_DIM
override HEAD_DIM: u32;

@group(0) @binding(0) var<storage, read> r: array<act>;
@group(0) @binding(1) var<storage, read> k: array<act>;
@group(0) @binding(2) var<storage, read> v: array<act>;
@group(0) @binding(3) var<storage, read> u: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<act>;
@group(0) @binding(5) var<uniform> symbols: Symbols;

const LANES = 64u;

var<workgroup> sums: array<f32, LANES>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if group.y >= row_count(symbols) {
        return;
    }
    let first = group.x * HEAD_DIM;
    let row = group.y * K;
    var sum = 0.0;
    for (var j = first + lane; j < first + HEAD_DIM; j += LANES) {
        sum = fma(f32(r[row + j]) * weight_value(u[weight_word(j)], j), f32(k[row + j]), sum);
    }
    sums[lane] = sum;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step >>= 1u) {
        if lane < step {
            sums[lane] += sums[lane + step];
        }
        workgroupBarrier();
    }
    for (var j = first + lane; j < first + HEAD_DIM; j += LANES) {
        y[row + j] = to_act(sums[0] * f32(v[row + j]));
    }
}
