// y = (x - zero point) * scale.
override COUNT: u32; // elements
override HAS_ZERO: u32;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> scale: array<act>;
@group(0) @binding(2) var<storage, read> zero: array<u32>; // not read unless HAS_ZERO
@group(0) @binding(3) var<storage, read_write> y: array<act>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < COUNT {
            let p = scale_of(e);
            var v = integer_of(x[e / per_word()], e);
            if HAS_ZERO == 1u {
                v -= integer_of(zero[p / per_word()], p);
            }
            y[e] = to_act(f32(v) * f32(scale[p]));
        }
    }
}
