// The last row of indices that names each slice: its number from 1 on, 0 where none does.
override COUNT: u32; // rows of indices

@group(0) @binding(0) var<storage, read> indices: array<u32>;
@group(0) @binding(1) var<storage, read> sizes: array<u32>; // of the dimensions that are indexed; their strides
@group(0) @binding(2) var<storage, read_write> owners: array<atomic<u32>>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let row = group.x * 1024u + i * 256u + lane;
        if row < COUNT {
            let first = slice_of(row);
            if first != NO_SLICE {
                atomicMax(&owners[first / SLICE], row + 1u);
            }
        }
    }
}
