// As convolution.wgsl, as a product of matrices: rows are channels m of a group, columns places o, and the sum runs over the
// channels c of the group and the kernel positions k. A workgroup treats ROWS channels of COLUMNS places; DEPTH terms of the
// sum at a time lie in its memory; the next ones are loaded into registers meanwhile. An invocation treats 4 channels of CELLS places, COLUMNS / CELLS apart from each other.
// Workgroup (i, j, n): places COLUMNS i and on, channels ROWS j and on.
override CHANNELS: u32; // of x in a group
override OUTPUTS: u32; // channels of y in a group
override GROUPS: u32;
override TILES: u32; // tiles of channels in a group
override PLACES: u32; // of a channel of y
override HAS_BIAS: u32;
const LANES = ROWS / 4u * (COLUMNS / CELLS);
const APART = COLUMNS / CELLS;
const STRIDE = ROWS + 1u;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> w: array<act>;
@group(0) @binding(2) var<storage, read> bias: array<act>; // not read unless HAS_BIAS
@group(0) @binding(3) var<storage, read_write> y: array<act>;

var<workgroup> tile_w: array<f32, DEPTH * STRIDE>;
var<workgroup> tile_x: array<f32, DEPTH * COLUMNS>;

// Term k of the sum of a place: an element of x, or a zero of its margin. Without branches loads do not wait for each other.
fn term(k: u32, corner: vec3<i32>, plane: u32, is_place: bool) -> f32 {
    let rest = k % (K0 * K1 * K2);
    let channel = k / (K0 * K1 * K2);
    let i0 = u32(corner.x + i32(rest / (K1 * K2)) * D0);
    let i1 = u32(corner.y + i32(rest / K2 % K1) * D1);
    let i2 = u32(corner.z + i32(rest % K2) * D2);
    let is_inside = is_place && channel < CHANNELS && i0 < X0 && i1 < X1 && i2 < X2;
    let at = ((plane + channel) * X0 + i0) * X1 * X2 + i1 * X2 + i2;
    return select(0.0, f32(x[select(0u, at, is_inside)]), is_inside);
}

// The weight of term k for channel m of a group whose channels begin at `base`.
fn weight(k: u32, m: u32, base: u32) -> f32 {
    let terms = CHANNELS * K0 * K1 * K2;
    let is_inside = k < terms && m < OUTPUTS;
    return select(0.0, f32(w[select(0u, (base + m) * terms + k, is_inside)]), is_inside);
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let own = group.y / TILES;
    let tile = group.y % TILES * ROWS;
    let terms = CHANNELS * K0 * K1 * K2;
    let base = own * OUTPUTS;
    // The place whose x this invocation loads.
    let place = group.x * COLUMNS + lane % COLUMNS;
    let is_place = place < PLACES;
    let corner = vec3<i32>(
        i32(place / (Y1 * Y2)) * S0 - P0, i32(place / Y2 % Y1) * S1 - P1, i32(place % Y2) * S2 - P2,
    );
    let plane = (group.z * GROUPS + own) * CHANNELS;
    let row = lane / APART * 4u;
    let column = lane % APART;
SUMS
VALUES
    // Terms from `first` on are loaded, then those before them are multiplied, while the loads are under way.
    for (var first = 0u; first < terms + DEPTH; first += DEPTH) {
        if first < terms {
LOADS
        }
        if first > 0u {
            for (var k = 0u; k < DEPTH; k++) {
                let at = k * STRIDE + row;
                let weights = vec4<f32>(tile_w[at], tile_w[at + 1u], tile_w[at + 2u], tile_w[at + 3u]);
PRODUCTS
            }
        }
        workgroupBarrier();
KEEPS
        workgroupBarrier();
    }
    for (var t = 0u; t < 4u && tile + row + t < OUTPUTS; t++) {
        let m = base + tile + row + t;
        var b = 0.0;
        if HAS_BIAS == 1u {
            b = f32(bias[m]);
        }
        let start = (group.z * GROUPS * OUTPUTS + m) * PLACES;
STORES
    }
}
