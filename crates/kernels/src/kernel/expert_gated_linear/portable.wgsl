// y = silu(x * transposed gates) * (x * transposed ups) with the matrices of the chosen experts, element by element of
// both products. A place is a slot of a row: place p is slot p % SLOTS of row p / SLOTS. Workgroups (x, y) first stand
// for 4 outputs; those with different y share the work.
//
// Few places: each workgroup computes 4 outputs of every places-th place; its lanes take every 64th pair along K.
// Many places: workgroups with x < O / 16 take every y-th expert, gather the places that chose it and compute tiles of
// 32 places by 16 outputs. A tile is 32 columns wide: quads of gate columns and of up columns alternate, so neighbouring
// lanes hold what belongs together.
override K: u32; // row length of gate, of up and of a block of x
override O: u32; // outputs of an expert
override SLOTS: u32; // experts of a row
override SHARED: u32; // whether all slots of a row read the same x
override EXPERTS: u32;
override FIRST: u32 = 0u; // first expert of this launch
override COUNT: u32; // experts of this launch
override FEW: u32 = 4u; // places for each expert, in the mean, up to which the first way is taken
override RUN: u32 = 32u; // products added up one by one before the sum joins the others; a multiple of DEPTH

const LANES = 64u;
const STEP = 128u; // elements along K that all lanes take at once, two in each
const TILE = 32u; // places and columns of a tile
const DEPTH = 16u; // elements along K at a time: little workgroup memory, which costs time to clear
const QUADS = 8u; // TILE / 4
const OUTPUTS = 16u; // TILE / 2

// Element k of 4 places or 4 columns lies at [k * QUADS + quad].
var<workgroup> x_tile: array<vec4<f32>, 128>;
var<workgroup> w_tile: array<vec4<f32>, 128>;
// Writes outputs `first` to `first + 3` of a place, those that exist.
fn store(place: u32, first: u32, values: vec4<f32>) {
    let at = place * O + first;
    for (var c = 0u; c < 4u && first + c < O; c++) {
        y[at + c] = to_act(values[c]);
    }
}

// One place, outputs `first` to `first + 3`.
fn vector(place: u32, expert: u32, first: u32, lane: u32) {
    let start = four(first, O) * K + w_start(expert);
    let from_x = x_start(place);
    var g_even = vec4<f32>();
    var g_odd = vec4<f32>();
    var u_even = vec4<f32>();
    var u_odd = vec4<f32>();
    var k = 2u * lane;
    // Two pairs at a time keep more loads in flight.
    for (; k + STEP + 1u < K; k += 2u * STEP) {
        let g0 = gate_pair(start + k);
        let u0 = up_pair(start + k);
        let g1 = gate_pair(start + (k + STEP));
        let u1 = up_pair(start + (k + STEP));
        let x0 = x_pair(from_x + k);
        let x1 = x_pair(from_x + k + STEP);
        g_even = fma(x1.xxxx, g1.first, fma(x0.xxxx, g0.first, g_even));
        g_odd = fma(x1.yyyy, g1.second, fma(x0.yyyy, g0.second, g_odd));
        u_even = fma(x1.xxxx, u1.first, fma(x0.xxxx, u0.first, u_even));
        u_odd = fma(x1.yyyy, u1.second, fma(x0.yyyy, u0.second, u_odd));
    }
    if k + 1u < K {
        let gates = gate_pair(start + k);
        let ups = up_pair(start + k);
        let factors = x_pair(from_x + k);
        g_even = fma(factors.xxxx, gates.first, g_even);
        g_odd = fma(factors.yyyy, gates.second, g_odd);
        u_even = fma(factors.xxxx, ups.first, u_even);
        u_odd = fma(factors.yyyy, ups.second, u_odd);
    }
    if (K & 1u) == 1u && lane == 0u {
        let last = vec4<f32>(f32(x[from_x + K - 1u]));
        g_odd = fma(last, gate_one(start + (K - 1u)), g_odd);
        u_odd = fma(last, up_one(start + (K - 1u)), u_odd);
    }
    x_tile[lane] = g_even + g_odd;
    w_tile[lane] = u_even + u_odd;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step >>= 1u) {
        if lane < step {
            x_tile[lane] += x_tile[lane + step];
            w_tile[lane] += w_tile[lane + step];
        }
        workgroupBarrier();
    }
    if lane == 0u {
        store(place, first, gated(x_tile[0], w_tile[0]));
    }
    workgroupBarrier();
}

// Loads elements k to k + 15 of the tile's places and columns; zeros from K on.
fn load(places: u32, expert: u32, first: u32, k: u32, lane: u32) {
    for (var i = lane; i < DEPTH * QUADS; i += LANES) {
        let at = k + i % DEPTH;
        var values = vec4<f32>();
        if at < K {
            values = x_one(x_four(i / DEPTH * 4u, places) + vec4<u32>(at));
        }
        x_tile[i % DEPTH * QUADS + i / DEPTH] = values;
    }
    for (var i = lane; i < DEPTH / 2u * (QUADS / 2u); i += LANES) {
        let pair = i % (DEPTH / 2u);
        let quad = i / (DEPTH / 2u);
        let at = k + 2u * pair;
        let start = four(first + quad * 4u, O) * K + vec4<u32>(w_start(expert) + at);
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

// The gathered places, outputs `first` to `first + 15`.
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
    // Neighbours hold gate and up of the same outputs; each finishes two of the four rows. Odd lanes hold up.
    let odd = (lane & 1u) == 1u;
    x_tile[lane] = select(sums2, sums0, odd);
    w_tile[lane] = select(sums3, sums1, odd);
    workgroupBarrier();
    let other = lane ^ 1u;
    let place = row_quad * 4u + select(0u, 2u, odd);
    let output = first + quad / 2u * 4u;
    if place < places {
        store(gathered[place], output, gated(select(sums0, x_tile[other], odd), select(x_tile[other], sums2, odd)));
    }
    if place + 1u < places {
        store(gathered[place + 1u], output, gated(select(sums1, w_tile[other], odd), select(w_tile[other], sums3, odd)));
    }
}
