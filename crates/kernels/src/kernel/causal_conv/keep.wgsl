// state = the last TAPS - 1 rows of the state with x below it. Each invocation moves its column upwards row by row, so
// that no row is overwritten before it has been read.
override K: u32; // row length
override TAPS: u32;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read_write> state: array<f32>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let rows = row_count(symbols);
    let held = (TAPS - 1u) * K;
    for (var i = 0u; i < 4u; i++) {
        let column = group.x * 1024u + i * 256u + lane;
        if column >= K {
            continue;
        }
        for (var to = column; to < held; to += K) {
            let at = to + rows * K;
            if at < held {
                state[to] = state[at];
            } else {
                state[to] = f32(x[at - held]);
            }
        }
    }
}
