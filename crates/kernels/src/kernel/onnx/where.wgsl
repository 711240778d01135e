// y is an element of x where the condition holds, else of z, each stretched to the sizes of y.
override RANK: u32;

@group(0) @binding(0) var<storage, read> condition: array<u32>; // four truths in a word
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> z: array<u32>;
@group(0) @binding(3) var<storage, read> sizes: array<u32>; // of y; strides of condition, x, z
@group(0) @binding(4) var<storage, read_write> y: array<u32>;
@group(0) @binding(5) var<uniform> symbols: Symbols;

override WORDS: u32; // words of y
override BYTES: u32; // of an element: 4 or 8

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let w = group.x * 1024u + i * 256u + lane;
        if w < WORDS {
            let per = BYTES / 4u;
            var rest = w / per;
            var c = 0u;
            var p = 0u;
            var q = 0u;
            for (var d = RANK; d > 0u; d--) {
                let at = rest % sizes[d - 1u];
                c += at * sizes[RANK + d - 1u];
                p += at * sizes[2u * RANK + d - 1u];
                q += at * sizes[3u * RANK + d - 1u];
                rest /= sizes[d - 1u];
            }
            if ((condition[c / 4u] >> (c % 4u * 8u)) & 255u) != 0u {
                y[w] = x[p * per + w % per];
            } else {
                y[w] = z[q * per + w % per];
            }
        }
    }
}
