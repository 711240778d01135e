// y = x / (BIAS + ALPHA * the sum of squares of SIZE channels around its own)^BETA.
override COUNT: u32; // elements
override CHANNELS: u32;
override INNER: u32; // elements of a channel
override SIZE: u32;
override ALPHA: f32;
override BETA: f32;
override BIAS: f32;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read_write> y: array<act>;
@group(0) @binding(2) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < COUNT {
            let channel = e / INNER % CHANNELS;
            let before = min(channel, (SIZE - 1u) / 2u);
            let behind = min(CHANNELS - 1u - channel, SIZE / 2u);
            var sum = 0.0;
            for (var c = 0u; c <= before + behind; c++) {
                let v = f32(x[e - before * INNER + c * INNER]);
                sum = fma(v, v, sum);
            }
            y[e] = to_act(f32(x[e]) / formula(fma(ALPHA, sum, BIAS), BETA));
        }
    }
}
