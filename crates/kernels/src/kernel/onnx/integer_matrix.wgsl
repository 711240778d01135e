// y = a b for each of a batch of matrices of integers, whose sums wrap. A workgroup treats 16 x 16 elements of y; 16 x 16 of a and
// of b lie in its memory.
override M: u32;
override N: u32;
override K: u32;
override BATCH_RANK: u32; // dimensions of the batch

@group(0) @binding(0) var<storage, read> a: array<i32>;
@group(0) @binding(1) var<storage, read> b: array<i32>;
@group(0) @binding(2) var<storage, read> sizes: array<u32>; // of the batch; strides of a along it; strides of b
@group(0) @binding(3) var<storage, read_write> y: array<i32>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

var<workgroup> tile_a: array<i32, 256>;
var<workgroup> tile_b: array<i32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var a0 = 0u;
    var b0 = 0u;
    var rest = group.z;
    for (var d = BATCH_RANK; d > 0u; d--) {
        a0 += rest % sizes[d - 1u] * sizes[BATCH_RANK + d - 1u];
        b0 += rest % sizes[d - 1u] * sizes[2u * BATCH_RANK + d - 1u];
        rest /= sizes[d - 1u];
    }
    let i = lane / 16u;
    let j = lane % 16u;
    let row = group.y * 16u + i;
    let column = group.x * 16u + j;
    var sum = 0;
    for (var k = 0u; k < K; k += 16u) {
        var v = 0;
        if row < M && k + j < K {
            v = a[a0 + row * K + k + j];
        }
        tile_a[lane] = v;
        v = 0;
        if column < N && k + i < K {
            v = b[b0 + (k + i) * N + column];
        }
        tile_b[lane] = v;
        workgroupBarrier();
        for (var t = 0u; t < 16u; t++) {
            sum += tile_a[i * 16u + t] * tile_b[t * 16u + j];
        }
        workgroupBarrier();
    }
    if row < M && column < N {
        y[(group.z * M + row) * N + column] = sum;
    }
}
