// y[i] = source[slots[i]] where slots[i] is a row of source, else x[i].
override K: u32; // row length
// Rows of source: SOURCE_N * n + SOURCE_P * p + SOURCE_C.
override SOURCE_N: u32 = 0u;
override SOURCE_P: u32 = 0u;
override SOURCE_C: u32 = 0u;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> source: array<act>;
@group(0) @binding(2) var<storage, read> slots: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<act>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * K;
    let sources = SOURCE_N * symbols.n + SOURCE_P * symbols.p + SOURCE_C;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < count {
            let slot = slots[e / K];
            if slot < sources {
                y[e] = source[slot * K + e % K];
            } else {
                y[e] = x[e];
            }
        }
    }
}
