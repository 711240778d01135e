// Group g of y = K columns of a, those of group g, and then L columns of b.
override ROW_A: u32; // row length of a
override ROW_B: u32; // row length of b
override ROW_Y: u32; // row length of y
override K: u32;
override L: u32;
override STEP: u32; // from one group of b to the next: L, or 0 if all share one

@group(0) @binding(0) var<storage, read> a: array<act>;
@group(0) @binding(1) var<storage, read> b: array<act>;
@group(0) @binding(2) var<storage, read_write> y: array<act>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * ROW_Y;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < count {
            let row = e / ROW_Y;
            let part = e % ROW_Y / (K + L);
            let j = e % ROW_Y % (K + L);
            if j < K {
                y[e] = a[row * ROW_A + part * K + j];
            } else {
                y[e] = b[row * ROW_B + part * STEP + j - K];
            }
        }
    }
}
