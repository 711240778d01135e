// Writes the new rows behind those that the cache holds; the cache itself is not touched.
override K: u32; // row length
// Rows of the cache: CACHE_N * n + CACHE_P * p + CACHE_C.
override CACHE_N: u32 = 0u;
override CACHE_P: u32 = 0u;
override CACHE_C: u32 = 0u;

@group(0) @binding(0) var<storage, read> added: array<act>;
@group(0) @binding(1) var<storage, read_write> y: array<act>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * K;
    let start = (CACHE_N * symbols.n + CACHE_P * symbols.p + CACHE_C) * K;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < count {
            y[start + e] = added[e];
        }
    }
}
