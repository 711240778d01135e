// y[i] = given[i] + OFFSET.
override OFFSET: u32 = 0u;

@group(0) @binding(0) var<storage, read> given: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols);
    for (var i = 0u; i < 4u; i++) {
        let at = group.x * 1024u + i * 256u + lane;
        if at < count {
            y[at] = given[at] + OFFSET;
        }
    }
}
