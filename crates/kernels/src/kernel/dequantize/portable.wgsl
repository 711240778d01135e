// y = (w - zero) * scale, element by element.
override K: u32; // row length of y

@group(0) @binding(0) var<storage, read> w: array<u32>;
@group(0) @binding(1) var<storage, read> scale: array<u32>;
@group(0) @binding(2) var<storage, read> zero: array<u32>; // not read unless ZEROS
@group(0) @binding(3) var<storage, read_write> y: array<act_out>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * K;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < count {
            y[e] = to_out(w_one(vec4<u32>(e)).x);
        }
    }
}
