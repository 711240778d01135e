// y[n, m, o] = bias[m] + the sum over channels c of m's group and kernel positions k of x[n, c, o * stride + k * dilation - pad]
// * w[m, c, k], in three dimensions; missing ones have a size of 1. An invocation treats TILE channels m of one place o, so
// that each x that it reads counts for all of them. Workgroup (i, j, n): places 256 i and on, channels TILE j and on.
override CHANNELS: u32; // of x in a group
override OUTPUTS: u32; // channels of y in a group
override GROUPS: u32;
override TILES: u32; // tiles of channels in a group
override PLACES: u32; // of a channel of y
override HAS_BIAS: u32;
const TILE = 4u;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> w: array<act>;
@group(0) @binding(2) var<storage, read> bias: array<act>; // not read unless HAS_BIAS
@group(0) @binding(3) var<storage, read_write> y: array<act>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let place = group.x * 256u + lane;
    if place >= PLACES {
        return;
    }
    let own = group.y / TILES;
    let tile = group.y % TILES * TILE;
    let volume = K0 * K1 * K2;
    let step = CHANNELS * volume;
    // The last tile may be narrower: its surplus channels are computed as the last one and not written.
    let last = OUTPUTS - 1u;
    let base = own * OUTPUTS;
    let w0 = (base + tile) * step;
    let w1 = (base + min(tile + 1u, last)) * step;
    let w2 = (base + min(tile + 2u, last)) * step;
    let w3 = (base + min(tile + 3u, last)) * step;
    let o0 = i32(place / (Y1 * Y2)) * S0 - P0;
    let o1 = i32(place / Y2 % Y1) * S1 - P1;
    let o2 = i32(place % Y2) * S2 - P2;
    var sums = vec4<f32>();
    for (var c = 0u; c < CHANNELS; c++) {
        let plane = ((group.z * GROUPS + own) * CHANNELS + c) * X0;
        var k = c * volume;
        for (var k0 = 0u; k0 < K0; k0++) {
            let i0 = u32(o0 + i32(k0) * D0);
            for (var k1 = 0u; k1 < K1; k1++) {
                let i1 = u32(o1 + i32(k1) * D1);
                if i0 < X0 && i1 < X1 {
                    let row = ((plane + i0) * X1 + i1) * X2;
                    for (var k2 = 0u; k2 < K2; k2++) {
                        let i2 = u32(o2 + i32(k2) * D2);
                        if i2 < X2 {
                            let v = f32(x[row + i2]);
                            let at = k + k2;
                            let weights = vec4<f32>(f32(w[w0 + at]), f32(w[w1 + at]), f32(w[w2 + at]), f32(w[w3 + at]));
                            sums = fma(vec4<f32>(v), weights, sums);
                        }
                    }
                }
                k += K2;
            }
        }
    }
    for (var t = 0u; t < TILE && tile + t < OUTPUTS; t++) {
        let m = base + tile + t;
        var v = sums[t];
        if HAS_BIAS == 1u {
            v += f32(bias[m]);
        }
        let at = (group.z * GROUPS * OUTPUTS + m) * PLACES + place;
        y[at] = to_act(epilogue(v, at, m));
    }
}
