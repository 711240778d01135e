
// y[i] = start + i * delta.
override COUNT: u32; // elements of y

@group(0) @binding(0) var<storage, read> start: array<num>;
@group(0) @binding(1) var<storage, read> delta: array<num>;
@group(0) @binding(2) var<storage, read_write> y: array<num>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < COUNT {
            y[e] = to_num(element(e, val(start[0]), val(delta[0])));
        }
    }
}

