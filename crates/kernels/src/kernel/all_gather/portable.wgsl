// The columns of y from FIRST on = x.
override ROW_X: u32; // row length of x
override ROW_Y: u32; // row length of y
override FIRST: u32;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read_write> y: array<act>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * ROW_X;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < count {
            y[e / ROW_X * ROW_Y + FIRST + e % ROW_X] = x[e];
        }
    }
}
