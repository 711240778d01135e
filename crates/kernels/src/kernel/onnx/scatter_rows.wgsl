// Slices of y that rows of indices name, put there by the last row of each slice.
override COUNT: u32; // elements of updates

@group(0) @binding(0) var<storage, read> indices: array<u32>;
@group(0) @binding(1) var<storage, read> updates: array<num>;
@group(0) @binding(2) var<storage, read> sizes: array<u32>; // of the dimensions that are indexed; their strides
@group(0) @binding(3) var<storage, read> owners: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<num>;
@group(0) @binding(5) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < COUNT {
            let row = e / SLICE;
            let first = slice_of(row);
            if first != NO_SLICE {
                if owners[first / SLICE] == row + 1u {
                    y[first + e % SLICE] = updates[e];
                }
            }
        }
    }
}
