// Slices of y that rows of indices name, each element taken together with its updates: an invocation treats one element of all
// slices, row by row.
override COUNT: u32; // rows of indices

@group(0) @binding(0) var<storage, read> indices: array<u32>;
@group(0) @binding(1) var<storage, read> updates: array<num>;
@group(0) @binding(2) var<storage, read> sizes: array<u32>; // of the dimensions that are indexed; their strides
@group(0) @binding(3) var<storage, read_write> y: array<num>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let inner = group.x * 1024u + i * 256u + lane;
        for (var row = 0u; row < COUNT && inner < SLICE; row++) {
            let first = slice_of(row);
            if first != NO_SLICE {
                let at = first + inner;
                y[at] = together(y[at], updates[row * SLICE + inner]);
            }
        }
    }
}
