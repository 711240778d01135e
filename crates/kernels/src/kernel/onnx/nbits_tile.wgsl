// Many rows: workgroup (i, j) treats columns 64 i to 64 i + 63 of rows 64 j to 64 j + 63, 16 of K at a time, which lie in its
// memory. A lane treats four columns of four rows.
var<workgroup> tile_a: array<f32, 1024>; // [16, 64]: of K and of rows
var<workgroup> tile_b: array<f32, 1024>; // [16, 64]: of K and of columns

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y * 64u + lane / 4u;
    let column = group.x * 64u + lane / 4u;
    let words = BLOCKS * BLOCK * BITS / 32u;
    var sums0 = vec4<f32>();
    var sums1 = vec4<f32>();
    var sums2 = vec4<f32>();
    var sums3 = vec4<f32>();
    for (var first = 0u; first < K; first += 16u) {
        let k = first + lane % 4u * 4u;
        var weights = vec4<f32>();
        if column < N && k < K {
            let block = k / BLOCK;
            let word = b[column * words + k * BITS / 32u];
            weights = (numbers(word, k * BITS % 32u) - zero_point(column, block)) * f32(scales[column * BLOCKS + block]);
        }
        for (var i = 0u; i < 4u; i++) {
            var v = 0.0;
            if row < M && k + i < K {
                v = f32(a[row * K + k + i]);
            }
            let at = (lane % 4u * 4u + i) * 64u + lane / 4u;
            tile_a[at] = v;
            tile_b[at] = weights[i];
        }
        workgroupBarrier();
        for (var t = 0u; t < 16u; t++) {
            let left = t * 64u + lane / 16u * 4u;
            let right = t * 64u + lane % 16u * 4u;
            let w = vec4<f32>(tile_b[right], tile_b[right + 1u], tile_b[right + 2u], tile_b[right + 3u]);
            sums0 = fma(vec4<f32>(tile_a[left]), w, sums0);
            sums1 = fma(vec4<f32>(tile_a[left + 1u]), w, sums1);
            sums2 = fma(vec4<f32>(tile_a[left + 2u]), w, sums2);
            sums3 = fma(vec4<f32>(tile_a[left + 3u]), w, sums3);
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 4u; i++) {
        let n = group.x * 64u + lane % 16u * 4u + i;
        if n < N {
            var shift = 0.0;
            if HAS_BIAS == 1u {
                shift = f32(bias[n]);
            }
            let own = vec4<f32>(sums0[i], sums1[i], sums2[i], sums3[i]) + shift;
            for (var r = 0u; r < 4u; r++) {
                let m = group.y * 64u + lane / 16u * 4u + r;
                if m < M {
                    y[m * N + n] = to_act(own[r]);
                }
            }
        }
    }
}
