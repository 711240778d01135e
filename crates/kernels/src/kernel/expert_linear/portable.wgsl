// y = x * the transposed matrices of the chosen experts (+ their biases). A place is a slot of a row: place p is slot
// p % SLOTS of row p / SLOTS. Workgroups (x, y) first stand for 4 outputs; those with different y share the work.
//
// Few places: each workgroup computes 4 outputs of every places-th place; its lanes take every 64th pair along K.
// Many places: workgroups with x < O / 32 take every y-th expert, gather the places that chose it and compute tiles of
// 32 places by 32 outputs, 4 by 4 in each lane; the others end.
override K: u32; // row length of w and of a block of x
override O: u32; // outputs of an expert
override SLOTS: u32; // experts of a row
override SHARED: u32; // whether all slots of a row read the same x
override EXPERTS: u32;
override FIRST: u32 = 0u; // first expert of this launch
override COUNT: u32; // experts of this launch
override HAS_BIAS: u32 = 0u;
override B_DTYPE: u32 = 0u; // as W_DTYPE
override FEW: u32 = 4u; // places for each expert, in the mean, up to which the first way is taken
override RUN: u32 = 32u; // products added up one by one before the sum joins the others; a multiple of DEPTH

const LANES = 64u;
const STEP = 128u; // elements along K that all lanes take at once, two in each
const TILE = 32u; // places and outputs of a tile
const OUTPUTS = 32u; // TILE
const DEPTH = 16u; // elements along K at a time: little workgroup memory, which costs time to clear
const QUADS = 8u; // TILE / 4

// Element k of 4 places or 4 outputs lies at [k * QUADS + quad].
var<workgroup> x_tile: array<vec4<f32>, 128>;
var<workgroup> w_tile: array<vec4<f32>, 128>;
fn bias(expert: u32, output: u32) -> f32 {
    if HAS_BIAS == 0u {
        return 0.0;
    }
    let at = expert * O + output;
    if B_DTYPE == 0u {
        return bitcast<f32>(b[at]);
    }
    let half = select(b[at >> 1u], b[at >> 1u] >> 16u, (at & 1u) == 1u);
    return select(bitcast<f32>(half << 16u), unpack2x16float(half).x, B_DTYPE == 1u);
}

fn store(place: u32, expert: u32, output: u32, value: f32) {
    y[place * O + output] = to_act(value + bias(expert, output));
}

// One place, outputs `first` to `first + 3`.
fn vector(place: u32, expert: u32, first: u32, lane: u32) {
    let start = four(first, O) * K + w_start(expert);
    let from_x = x_start(place);
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
        store(place, expert, first + lane, w_tile[0][lane]);
    }
    workgroupBarrier();
}

// Loads elements k to k + 15 of the tile's places and outputs; zeros from K on.
fn load(places: u32, expert: u32, first: u32, k: u32, lane: u32) {
    for (var i = lane; i < DEPTH * QUADS; i += LANES) {
        let at = k + i % DEPTH;
        var values = vec4<f32>();
        if at < K {
            values = x_one(x_four(i / DEPTH * 4u, places) + vec4<u32>(at));
        }
        x_tile[i % DEPTH * QUADS + i / DEPTH] = values;
    }
    for (var i = lane; i < DEPTH / 2u * QUADS; i += LANES) {
        let pair = i % (DEPTH / 2u);
        let quad = i / (DEPTH / 2u);
        let at = k + 2u * pair;
        let start = four(first + quad * 4u, O) * K + vec4<u32>(w_start(expert) + at);
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

// The gathered places, outputs `first` to `first + 31`.
fn tile(places: u32, expert: u32, first: u32, lane: u32) {
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
        load(places, expert, first, k, lane);
        workgroupBarrier();
        for (var i = 0u; i < DEPTH * QUADS; i += QUADS) {
            let a = x_tile[i + row_quad];
            let c = w_tile[i + quad];
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
    let place = row_quad * 4u;
    let output = first + quad * 4u;
    for (var c = 0u; c < 4u; c++) {
        if output + c < O {
            if place < places { store(gathered[place], expert, output + c, sums0[c]); }
            if place + 1u < places { store(gathered[place + 1u], expert, output + c, sums1[c]); }
            if place + 2u < places { store(gathered[place + 2u], expert, output + c, sums2[c]); }
            if place + 3u < places { store(gathered[place + 3u], expert, output + c, sums3[c]); }
        }
    }
}
