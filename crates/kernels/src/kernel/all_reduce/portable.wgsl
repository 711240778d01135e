// The sum so far = x for the first rank, the sum so far + x for each one behind it, which the last one leaves in y.
override K: u32; // row length
override FIRST: u32; // 1 for the first rank
override LAST: u32; // 1 for the last rank

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<act>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * K;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < count {
            var sum = f32(x[e]);
            if FIRST == 0u {
                sum = sums[e] + sum;
            }
            if LAST == 1u {
                y[e] = to_act(sum);
            } else {
                sums[e] = sum;
            }
        }
    }
}
