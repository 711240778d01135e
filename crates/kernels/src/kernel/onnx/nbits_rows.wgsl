// A few rows: workgroup (i, j) treats columns 8 i to 8 i + 7 of rows 4 j to 4 j + 3, 32 lanes for each column.
override ROWS: u32; // 1 if there is one row, else 4

var<workgroup> parts: array<vec4<f32>, 256>;

// Four neighbouring elements of a row; those behind K are 0.
fn four(row: u32, k: u32) -> vec4<f32> {
    let at = row * K + k;
    if k + 4u <= K {
        return vec4<f32>(f32(a[at]), f32(a[at + 1u]), f32(a[at + 2u]), f32(a[at + 3u]));
    }
    var v = vec4<f32>();
    for (var i = 0u; k + i < K; i++) {
        v[i] = f32(a[at + i]);
    }
    return v;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let column = group.x * 8u + lane / 32u;
    let n = min(column, N - 1u);
    let own = lane % 32u;
    let rows = min(vec4<u32>(group.y * 4u) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(M - 1u));
    let words = BLOCKS * BLOCK * BITS / 32u;
    let each = 32u / BITS;
    var sums = vec4<f32>();
    for (var w = own; w < words; w += 32u) {
        let word = b[n * words + w];
        let block = w * each / BLOCK;
        let scale = f32(scales[n * BLOCKS + block]);
        let zero = zero_point(n, block);
        for (var i = 0u; i < each && w * each + i < K; i += 4u) {
            let k = w * each + i;
            let weights = (numbers(word, i * BITS) - zero) * scale;
            sums.x += dot(four(rows.x, k), weights);
            if ROWS > 1u {
                sums.y += dot(four(rows.y, k), weights);
                sums.z += dot(four(rows.z, k), weights);
                sums.w += dot(four(rows.w, k), weights);
            }
        }
    }
    parts[lane] = sums;
    workgroupBarrier();
    for (var step = 16u; step > 0u; step >>= 1u) {
        if own < step {
            parts[lane] += parts[lane + step];
        }
        workgroupBarrier();
    }
    if own < ROWS && column < N && group.y * 4u + own < M {
        var v = parts[lane - own][own];
        if HAS_BIAS == 1u {
            v += f32(bias[n]);
        }
        y[(group.y * 4u + own) * N + n] = to_act(v);
    }
}
