// y[n, m, o] = bias[m] + the sum over channels c of m's group and kernel positions k of x[n, c, i] * w[c, m, k] where
// i * stride + k * dilation - pad = o, in three dimensions; missing ones have a size of 1. An invocation treats one element.
override COUNT: u32; // elements of y
override CHANNELS: u32; // of x in a group
override OUTPUTS: u32; // channels of y in a group
override GROUPS: u32;
override HAS_BIAS: u32;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> w: array<act>;
@group(0) @binding(2) var<storage, read> bias: array<act>; // not read unless HAS_BIAS
@group(0) @binding(3) var<storage, read_write> y: array<act>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

// The index i with i * stride = at, or one beyond every size.
fn index(at: i32, stride: i32) -> u32 {
    return select(u32(at / stride), 0xffffffffu, at < 0 || at % stride != 0);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e >= COUNT {
            return;
        }
        let o0 = i32(e / (Y1 * Y2) % Y0) + P0;
        let o1 = i32(e / Y2 % Y1) + P1;
        let o2 = i32(e % Y2) + P2;
        let channel = e / (Y0 * Y1 * Y2);
        let m = channel % (GROUPS * OUTPUTS);
        let own = m / OUTPUTS;
        var sum = 0.0;
        for (var c = 0u; c < CHANNELS; c++) {
            let origin = own * CHANNELS + c;
            let plane = (channel / (GROUPS * OUTPUTS) * GROUPS * CHANNELS + origin) * X0;
            let kernel = (origin * OUTPUTS + m % OUTPUTS) * K0;
            for (var k0 = 0u; k0 < K0; k0++) {
                let i0 = index(o0 - i32(k0) * D0, S0);
                for (var k1 = 0u; k1 < K1; k1++) {
                    let i1 = index(o1 - i32(k1) * D1, S1);
                    for (var k2 = 0u; k2 < K2; k2++) {
                        let i2 = index(o2 - i32(k2) * D2, S2);
                        if i0 < X0 && i1 < X1 && i2 < X2 {
                            let v = f32(x[((plane + i0) * X1 + i1) * X2 + i2]);
                            sum = fma(v, f32(w[((kernel + k0) * K1 + k1) * K2 + k2]), sum);
                        }
                    }
                }
            }
        }
        if HAS_BIAS == 1u {
            sum += f32(bias[m]);
        }
        y[e] = to_act(sum);
    }
}
