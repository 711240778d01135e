// y = (x - mean) * scale / sqrt(var + EPS) + bias, one of each for a channel.
override COUNT: u32; // elements
override CHANNELS: u32;
override INNER: u32; // elements of a channel
override EPS: f32;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> scale: array<act>;
@group(0) @binding(2) var<storage, read> bias: array<act>;
@group(0) @binding(3) var<storage, read> mean: array<act>;
@group(0) @binding(4) var<storage, read> variance: array<act>;
@group(0) @binding(5) var<storage, read_write> y: array<act>;
@group(0) @binding(6) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < COUNT {
            let c = e / INNER % CHANNELS;
            let v = (f32(x[e]) - f32(mean[c])) / sqrt(f32(variance[c]) + EPS);
            y[e] = to_act(fma(v, f32(scale[c]), f32(bias[c])));
        }
    }
}
