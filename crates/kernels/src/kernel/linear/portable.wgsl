// y = x * transposed w (+ b). The same grid serves any number of rows: workgroup (x, y) first stands for OUTPUTS outputs.
//
// Few rows: each workgroup computes OUTPUTS outputs of every row, four at a time; its lanes take every 64th pair of
// elements along K.
// Many rows: workgroups with x < O / COLUMNS compute tiles of ROWS rows by COLUMNS outputs, 4 by 4 in each lane; the
// others end.
override K: u32; // row length of x and w
override O: u32; // outputs of this launch
override FIRST: u32 = 0u; // column of y where they begin
override WIDTH: u32; // row length of y
override HAS_BIAS: u32 = 0u;
override B_DTYPE: u32 = 0u; // as W_DTYPE
override FEW: u32 = 8u; // rows up to which the first way is taken
override RUN: u32 = 32u; // products added up one by one before the sum joins the others; a multiple of DEPTH
override OUTPUTS: u32 = 4u; // outputs of a workgroup when there are few rows; a multiple of 4, at most COLUMNS
override ROWS: u32 = 32u; // rows of a tile; a multiple of 4
override COLUMNS: u32 = 32u; // outputs of a tile: 1024 / ROWS
override DEPTH: u32 = 16u; // elements along K at a time: little workgroup memory, which costs time to clear
override ROW_QUADS: u32 = ROWS / 4u; // DEPTH * ROW_QUADS is at most 128
override QUADS: u32 = COLUMNS / 4u; // as ROW_QUADS

const LANES = 64u;
const STEP = 128u; // elements along K that all lanes take at once, two in each

// Element k of 4 rows lies at [k * ROW_QUADS + quad], of 4 outputs at [k * QUADS + quad].
var<workgroup> x_tile: array<vec4<f32>, 128>;
var<workgroup> w_tile: array<vec4<f32>, 128>;

fn bias(output: u32) -> f32 {
    if HAS_BIAS == 0u {
        return 0.0;
    }
    let at = FIRST + output;
    if B_DTYPE == 0u {
        return bitcast<f32>(b[at]);
    }
    let half = select(b[at >> 1u], b[at >> 1u] >> 16u, (at & 1u) == 1u);
    return select(bitcast<f32>(half << 16u), unpack2x16float(half).x, B_DTYPE == 1u);
}

fn store(row: u32, output: u32, value: f32) {
    y[row * WIDTH + FIRST + output] = to_out(value + bias(output));
}

// One row, outputs `first` to `first + 3`.
fn vector(row: u32, first: u32, lane: u32) {
    let start = four(first, O) * K;
    let from_x = row * K;
    var even = vec4<f32>();
    var odd = vec4<f32>();
    var k = 2u * lane;
    // Two pairs at a time keep more loads in flight.
    for (; k + STEP + 1u < K; k += 2u * STEP) {
        let w0 = w_pair(start + k);
        let w1 = w_pair(start + (k + STEP));
        let x0 = x_pair(from_x + k);
        let x1 = x_pair(from_x + k + STEP);
        even = fma(x1.xxxx, w1.first, fma(x0.xxxx, w0.first, even));
        odd = fma(x1.yyyy, w1.second, fma(x0.yyyy, w0.second, odd));
    }
    if k + 1u < K {
        let values = w_pair(start + k);
        let factors = x_pair(from_x + k);
        even = fma(factors.xxxx, values.first, even);
        odd = fma(factors.yyyy, values.second, odd);
    }
    if (K & 1u) == 1u && lane == 0u {
        odd = fma(vec4<f32>(f32(x[from_x + K - 1u])), w_one(start + (K - 1u)), odd);
    }
    w_tile[lane] = even + odd;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step >>= 1u) {
        if lane < step {
            w_tile[lane] += w_tile[lane + step];
        }
        workgroupBarrier();
    }
    if lane < 4u && first + lane < O {
        store(row, first + lane, w_tile[0][lane]);
    }
    workgroupBarrier();
}

// Loads elements k to k + DEPTH - 1 of the tile's rows and outputs; zeros from K on.
fn load(first_row: u32, rows: u32, first: u32, k: u32, lane: u32) {
    for (var i = lane; i < DEPTH * ROW_QUADS; i += LANES) {
        let at = k + i % DEPTH;
        var values = vec4<f32>();
        if at < K {
            values = x_one(four(first_row + i / DEPTH * 4u, rows) * K + vec4<u32>(at));
        }
        x_tile[i % DEPTH * ROW_QUADS + i / DEPTH] = values;
    }
    for (var i = lane; i < DEPTH / 2u * QUADS; i += LANES) {
        let pair = i % (DEPTH / 2u);
        let quad = i / (DEPTH / 2u);
        let at = k + 2u * pair;
        let start = four(first + quad * 4u, O) * K + vec4<u32>(at);
        var values = Pairs();
        if at + 1u < K {
            values = w_pair(start);
        } else if at < K {
            values.first = w_one(start);
        }
        w_tile[2u * pair * QUADS + quad] = values.first;
        w_tile[(2u * pair + 1u) * QUADS + quad] = values.second;
    }
}

// The tile whose first row and output these are.
fn tile(first_row: u32, rows: u32, first: u32, lane: u32) {
    let row_quad = lane / QUADS;
    let quad = lane % QUADS;
    var sums0 = vec4<f32>();
    var sums1 = vec4<f32>();
    var sums2 = vec4<f32>();
    var sums3 = vec4<f32>();
    // Sums of their own keep the chains of additions short.
    var part0 = vec4<f32>();
    var part1 = vec4<f32>();
    var part2 = vec4<f32>();
    var part3 = vec4<f32>();
    for (var k = 0u; k < K; k += DEPTH) {
        load(first_row, rows, first, k, lane);
        workgroupBarrier();
        for (var i = 0u; i < DEPTH; i++) {
            let a = x_tile[i * ROW_QUADS + row_quad];
            let c = w_tile[i * QUADS + quad];
            part0 = fma(a.xxxx, c, part0);
            part1 = fma(a.yyyy, c, part1);
            part2 = fma(a.zzzz, c, part2);
            part3 = fma(a.wwww, c, part3);
        }
        if (k + DEPTH) % RUN == 0u || k + DEPTH >= K {
            sums0 += part0;
            sums1 += part1;
            sums2 += part2;
            sums3 += part3;
            part0 = vec4<f32>();
            part1 = vec4<f32>();
            part2 = vec4<f32>();
            part3 = vec4<f32>();
        }
        workgroupBarrier();
    }
    let row = first_row + row_quad * 4u;
    let output = first + quad * 4u;
    for (var c = 0u; c < 4u; c++) {
        if output + c < O {
            if row < rows { store(row, output + c, sums0[c]); }
            if row + 1u < rows { store(row + 1u, output + c, sums1[c]); }
            if row + 2u < rows { store(row + 2u, output + c, sums2[c]); }
            if row + 3u < rows { store(row + 3u, output + c, sums3[c]); }
        }
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let rows = row_count(symbols);
    if rows <= FEW {
        for (var row = 0u; row < rows; row++) {
            for (var i = 0u; i < OUTPUTS; i += 4u) {
                vector(row, group.x * OUTPUTS + i, lane);
            }
        }
    } else if group.x * COLUMNS < O {
        tile(group.y * ROWS, rows, group.x * COLUMNS, lane);
    }
}
