// y = formula(x + bias), element by element, the bias along the last dimension; the formula stands at the end.
override COUNT: u32; // elements of y
override WIDTH: u32; // elements of the bias

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> bias: array<act>;
@group(0) @binding(2) var<storage, read_write> y: array<act>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < COUNT {
            y[e] = to_act(formula(f32(x[e]) + f32(bias[e % WIDTH])));
        }
    }
}
