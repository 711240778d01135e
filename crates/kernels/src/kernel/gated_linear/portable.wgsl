// y = silu(x * transposed gate) * (x * transposed up), element by element of both products. The same grid serves any
// number of rows: workgroup (x, y) first stands for 4 outputs.
//
// Few rows: each workgroup computes 4 outputs of every row; its lanes take every 64th pair of elements along K.
// Many rows: workgroups with x < O / 16 compute tiles of 32 rows by 16 outputs. A tile is 32 columns wide: quads of
// gate columns and of up columns alternate, so neighbouring lanes hold what belongs together.
override K: u32; // row length of x, gate and up
override O: u32; // outputs of this launch
override FIRST: u32 = 0u; // column of y where they begin
override WIDTH: u32; // row length of y
override FEW: u32 = 8u; // rows up to which the first way is taken

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> gate: array<u32>;
@group(0) @binding(2) var<storage, read> up: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<act>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

const LANES = 64u;
const TILE = 32u; // rows and columns of a tile, and elements along K at a time
const QUADS = 8u; // TILE / 4
const OUTPUTS = 16u; // TILE / 2

// Element k of 4 rows or 4 columns lies at [k * QUADS + quad].
var<workgroup> x_tile: array<vec4<f32>, 256>;
var<workgroup> w_tile: array<vec4<f32>, 256>;

// Rows `first` to `first + 3`, those beyond the last replaced by the last.
fn four(first: u32, count: u32) -> vec4<u32> {
    return min(vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u));
}

fn gate_one(at: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(
        weight_value(gate[weight_word(at.x)], at.x),
        weight_value(gate[weight_word(at.y)], at.y),
        weight_value(gate[weight_word(at.z)], at.z),
        weight_value(gate[weight_word(at.w)], at.w),
    );
}

fn up_one(at: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(
        weight_value(up[weight_word(at.x)], at.x),
        weight_value(up[weight_word(at.y)], at.y),
        weight_value(up[weight_word(at.z)], at.z),
        weight_value(up[weight_word(at.w)], at.w),
    );
}

// Elements `at` and `at + 1` of gate for each of four rows.
fn gate_pair(at: vec4<u32>) -> Pairs {
    if W_DTYPE == 0u || (K & 1u) == 1u {
        return Pairs(gate_one(at), gate_one(at + vec4<u32>(1u)));
    }
    let word = at >> vec4<u32>(1u);
    return weight_pairs(vec4<u32>(gate[word.x], gate[word.y], gate[word.z], gate[word.w]));
}

// Elements `at` and `at + 1` of up for each of four rows.
fn up_pair(at: vec4<u32>) -> Pairs {
    if W_DTYPE == 0u || (K & 1u) == 1u {
        return Pairs(up_one(at), up_one(at + vec4<u32>(1u)));
    }
    let word = at >> vec4<u32>(1u);
    return weight_pairs(vec4<u32>(up[word.x], up[word.y], up[word.z], up[word.w]));
}

fn x_one(at: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(f32(x[at.x]), f32(x[at.y]), f32(x[at.z]), f32(x[at.w]));
}

// silu(g) * u; with e = exp(-|g|) nothing overflows.
fn gated(g: vec4<f32>, u: vec4<f32>) -> vec4<f32> {
    let e = vec4<f32>(
        exp_accurate(-abs(g.x)),
        exp_accurate(-abs(g.y)),
        exp_accurate(-abs(g.z)),
        exp_accurate(-abs(g.w)),
    );
    return select(g, g * e, g < vec4<f32>()) / (vec4<f32>(1.0) + e) * u;
}

// Writes outputs `first` to `first + 3` of a row, those that exist.
fn store(row: u32, first: u32, values: vec4<f32>) {
    let at = row * WIDTH + FIRST + first;
    for (var c = 0u; c < 4u && first + c < O; c++) {
        y[at + c] = to_act(values[c]);
    }
}

// One row, outputs `first` to `first + 3`.
fn vector(row: u32, first: u32, lane: u32) {
    let start = four(first, O) * K;
    var g = vec4<f32>();
    var u = vec4<f32>();
    for (var pair = lane; pair < K / 2u; pair += LANES) {
        let at = row * K + 2u * pair;
        let a = vec4<f32>(f32(x[at]));
        let c = vec4<f32>(f32(x[at + 1u]));
        let gates = gate_pair(start + vec4<u32>(2u * pair));
        let ups = up_pair(start + vec4<u32>(2u * pair));
        g = fma(c, gates.second, fma(a, gates.first, g));
        u = fma(c, ups.second, fma(a, ups.first, u));
    }
    if (K & 1u) == 1u && lane == 0u {
        let a = vec4<f32>(f32(x[row * K + K - 1u]));
        g = fma(a, gate_one(start + vec4<u32>(K - 1u)), g);
        u = fma(a, up_one(start + vec4<u32>(K - 1u)), u);
    }
    x_tile[lane] = g;
    w_tile[lane] = u;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step >>= 1u) {
        if lane < step {
            x_tile[lane] += x_tile[lane + step];
            w_tile[lane] += w_tile[lane + step];
        }
        workgroupBarrier();
    }
    if lane == 0u {
        store(row, first, gated(x_tile[0], w_tile[0]));
    }
    workgroupBarrier();
}

// Loads elements k to k + 31 of the tile's rows and columns; zeros from K on.
fn load(first_row: u32, rows: u32, first: u32, k: u32, lane: u32) {
    for (var i = lane; i < TILE * QUADS; i += LANES) {
        let at = k + i % TILE;
        var values = vec4<f32>();
        if at < K {
            values = x_one(four(first_row + i / TILE * 4u, rows) * K + vec4<u32>(at));
        }
        x_tile[i % TILE * QUADS + i / TILE] = values;
    }
    for (var i = lane; i < TILE / 2u * (QUADS / 2u); i += LANES) {
        let pair = i % (TILE / 2u);
        let quad = i / (TILE / 2u);
        let at = k + 2u * pair;
        let start = four(first + quad * 4u, O) * K + vec4<u32>(at);
        var gates = Pairs();
        var ups = Pairs();
        if at + 1u < K {
            gates = gate_pair(start);
            ups = up_pair(start);
        } else if at < K {
            gates.first = gate_one(start);
            ups.first = up_one(start);
        }
        let to = 2u * pair * QUADS + 2u * quad;
        w_tile[to] = gates.first;
        w_tile[to + 1u] = ups.first;
        w_tile[to + QUADS] = gates.second;
        w_tile[to + QUADS + 1u] = ups.second;
    }
}

// Rows `first_row` to `first_row + 31`, outputs `first` to `first + 15`.
fn tile(first_row: u32, rows: u32, first: u32, lane: u32) {
    let row_quad = lane / QUADS;
    let quad = lane % QUADS;
    var sums0 = vec4<f32>();
    var sums1 = vec4<f32>();
    var sums2 = vec4<f32>();
    var sums3 = vec4<f32>();
    for (var k = 0u; k < K; k += TILE) {
        load(first_row, rows, first, k, lane);
        workgroupBarrier();
        // Sums of their own keep the chains of additions short.
        var part0 = vec4<f32>();
        var part1 = vec4<f32>();
        var part2 = vec4<f32>();
        var part3 = vec4<f32>();
        for (var i = 0u; i < TILE * QUADS; i += QUADS) {
            let a = x_tile[i + row_quad];
            let c = w_tile[i + quad];
            part0 = fma(a.xxxx, c, part0);
            part1 = fma(a.yyyy, c, part1);
            part2 = fma(a.zzzz, c, part2);
            part3 = fma(a.wwww, c, part3);
        }
        sums0 += part0;
        sums1 += part1;
        sums2 += part2;
        sums3 += part3;
        workgroupBarrier();
    }
    // Lanes of odd quads hand their columns of up to the neighbour that holds the same columns of gate.
    x_tile[4u * lane] = sums0;
    x_tile[4u * lane + 1u] = sums1;
    x_tile[4u * lane + 2u] = sums2;
    x_tile[4u * lane + 3u] = sums3;
    workgroupBarrier();
    // Each lane finishes two of the four rows of its pair of quads.
    let odd = lane & 1u;
    let even = lane - odd;
    for (var i = 2u * odd; i < 2u * odd + 2u; i++) {
        let row = first_row + row_quad * 4u + i;
        if row < rows {
            store(row, first + quad / 2u * 4u, gated(x_tile[4u * even + i], x_tile[4u * (even + 1u) + i]));
        }
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let rows = row_count(symbols);
    if rows <= FEW {
        for (var row = 0u; row < rows; row++) {
            vector(row, group.x * 4u, lane);
        }
    } else if group.x * OUTPUTS < O {
        tile(group.y * TILE, rows, group.x * OUTPUTS, lane);
    }
}
