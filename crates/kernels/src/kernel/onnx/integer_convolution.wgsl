// y[n, m, o] = the sum over channels c of m's group and kernel positions k of x[n, c, o * stride + k * dilation - pad] * w[m, c, k]
// of integers, whose sums wrap, in three dimensions; missing ones have a size of 1. An invocation treats TILE channels m of one
// place o. Workgroup (i, j, n): places 256 i and on, channels TILE j and on.
override CHANNELS: u32; // of x in a group
override OUTPUTS: u32; // channels of y in a group
override GROUPS: u32;
override TILES: u32; // tiles of channels in a group
override PLACES: u32; // of a channel of y
const TILE = 4u;

@group(0) @binding(0) var<storage, read> x: array<i32>;
@group(0) @binding(1) var<storage, read> w: array<i32>;
@group(0) @binding(2) var<storage, read_write> y: array<i32>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

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
    let base = own * OUTPUTS;
    let rows = (base + min(vec4<u32>(0u, 1u, 2u, 3u) + tile, vec4<u32>(OUTPUTS - 1u))) * step;
    let o0 = i32(place / (Y1 * Y2)) * S0 - P0;
    let o1 = i32(place / Y2 % Y1) * S1 - P1;
    let o2 = i32(place % Y2) * S2 - P2;
    var sums = vec4<i32>();
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
                            let at = rows + k + k2;
                            sums += x[row + i2] * vec4<i32>(w[at.x], w[at.y], w[at.z], w[at.w]);
                        }
                    }
                }
                k += K2;
            }
        }
    }
    for (var t = 0u; t < TILE && tile + t < OUTPUTS; t++) {
        y[(group.z * GROUPS * OUTPUTS + base + tile + t) * PLACES + place] = sums[t];
    }
}
