// y = ALPHA * a b + BETA * c, for each of a batch of matrices: y[i, j] is the sum over k of a[i, k] * b[k, j]. A workgroup
// treats 16 x 16 elements of y; 16 x 16 of a and of b lie in its memory.
override M: u32;
override N: u32;
override K: u32;
override A_ROW: u32; // elements from one row of a to the next
override A_COLUMN: u32;
override B_ROW: u32;
override B_COLUMN: u32;
override BATCH_RANK: u32; // dimensions of the batch
override ALPHA: f32 = 1.0;
override BETA: f32 = 1.0;
override HAS_C: u32 = 0u;
override C_ROW: u32 = 0u; // elements from one row of c to the next; 0 if all are alike
override C_COLUMN: u32 = 0u;

@group(0) @binding(0) var<storage, read> a: array<act>;
@group(0) @binding(1) var<storage, read> b: array<act>;
@group(0) @binding(2) var<storage, read> c: array<act>; // not read unless HAS_C
@group(0) @binding(3) var<storage, read> sizes: array<u32>; // of the batch; strides of a along it; strides of b
@group(0) @binding(4) var<storage, read_write> y: array<act_out>;

var<workgroup> tile_a: array<f32, 256>;
var<workgroup> tile_b: array<f32, 256>;

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
    var sum = 0.0;
    for (var k = 0u; k < K; k += 16u) {
        var v = 0.0;
        if row < M && k + j < K {
            v = f32(a[a0 + row * A_ROW + (k + j) * A_COLUMN]);
        }
        tile_a[lane] = v;
        v = 0.0;
        if column < N && k + i < K {
            v = f32(b[b0 + (k + i) * B_ROW + column * B_COLUMN]);
        }
        tile_b[lane] = v;
        workgroupBarrier();
        for (var t = 0u; t < 16u; t++) {
            sum = fma(tile_a[i * 16u + t], tile_b[t * 16u + j], sum);
        }
        workgroupBarrier();
    }
    if row < M && column < N {
        sum *= ALPHA;
        if HAS_C == 1u {
            sum = fma(BETA, f32(c[row * C_ROW + column * C_COLUMN]), sum);
        }
        let at = (group.z * M + row) * N + column;
        y[at] = to_out(epilogue(sum, at, column));
    }
}
