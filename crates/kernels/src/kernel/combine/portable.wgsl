// z = the sum over K blocks of columns of y, each times its weight if there are weights, element by element.
override K: u32; // blocks
override WIDTH: u32; // row length of z
override WEIGHTED: u32 = 0u;

@group(0) @binding(0) var<storage, read> y: array<act>;
@group(0) @binding(1) var<storage, read> weights: array<act_out>; // not read unless WEIGHTED
@group(0) @binding(2) var<storage, read_write> z: array<act>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = row_count(symbols) * WIDTH;
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < count {
            let row = e / WIDTH;
            var at = row * K * WIDTH + e % WIDTH;
            var sum = 0.0;
            for (var slot = 0u; slot < K; slot++) {
                var weight = 1.0;
                if WEIGHTED == 1u {
                    weight = f32(weights[row * K + slot]);
                }
                sum = fma(weight, f32(y[at]), sum);
                at += WIDTH;
            }
            z[e] = to_act(sum);
        }
    }
}
