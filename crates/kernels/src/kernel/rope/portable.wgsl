// Rotates the pairs (a, b) of each head to (a cos - b sin, b cos + a sin); elements from ROTARY_DIM on are copied.
override K: u32; // row length: heads * HEAD_DIM
override HEAD_DIM: u32;
override ROTARY_DIM: u32;
override INTERLEAVED: u32 = 0u; // 1: pairs are neighbours, 0: half of ROTARY_DIM apart

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> angles: array<f32>; // per row: cosines, then sines
@group(0) @binding(2) var<storage, read_write> y: array<act>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * K;
    let half = ROTARY_DIM / 2u;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e >= count {
            continue;
        }
        let j = e % K % HEAD_DIM;
        if j >= ROTARY_DIM {
            y[e] = x[e];
            continue;
        }
        let second = select(u32(j >= half), j & 1u, INTERLEAVED == 1u);
        let stride = select(half, 1u, INTERLEAVED == 1u);
        let pair = select(j - second * half, j >> 1u, INTERLEAVED == 1u);
        let first = e - second * stride;
        let a = f32(x[first]);
        let b = f32(x[first + stride]);
        let angle = e / K * ROTARY_DIM + pair;
        let cosine = angles[angle];
        let sine = angles[angle + half];
        y[e] = to_act(select(a * cosine - b * sine, b * cosine + a * sine, second == 1u));
    }
}
