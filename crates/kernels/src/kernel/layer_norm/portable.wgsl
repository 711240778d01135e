// y = (x - mean) * (OFFSET + w) / sqrt(mean of (x - mean)^2 + EPS) + b over every K columns. Such a run is treated by a
// team of TEAM lanes; workgroup x treats runs x * 256 / TEAM to (x + 1) * 256 / TEAM - 1. The mean comes first and the
// squares of the centred values after it: the difference of two large sums would lose the variance of rows far from 0.
override K: u32; // columns of a run
override EPS: f32;
override OFFSET: f32 = 0.0; // added to w
override HAS_WEIGHT: u32 = 1u;
override W_RUNS: u32 = 1u; // runs that w has values for: 1 if all are alike, else those of a row
override HAS_BIAS: u32 = 0u;
override B_RUNS: u32 = 1u; // as W_RUNS
override B_DTYPE: u32 = 0u; // as W_DTYPE

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> w: array<u32>; // not read unless HAS_WEIGHT
@group(0) @binding(2) var<storage, read> b: array<u32>; // not read unless HAS_BIAS
@group(0) @binding(3) var<storage, read_write> y: array<act>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

// The factor of column j of a run.
fn weight(run: u32, j: u32) -> f32 {
    if HAS_WEIGHT == 0u {
        return 1.0;
    }
    let at = run % W_RUNS * K + j;
    return OFFSET + weight_value(w[weight_word(at)], at);
}

fn bias(run: u32, j: u32) -> f32 {
    if HAS_BIAS == 0u {
        return 0.0;
    }
    let at = run % B_RUNS * K + j;
    if B_DTYPE == 0u {
        return bitcast<f32>(b[at]);
    }
    let half = select(b[at >> 1u], b[at >> 1u] >> 16u, (at & 1u) == 1u);
    return select(bitcast<f32>(half << 16u), unpack2x16float(half).x, B_DTYPE == 1u);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let run = group.x * (256u / TEAM) + lane / TEAM;
    let first = run * K;
    let end = select(0u, K, run < row_count(symbols));
    var total = 0.0;
    for (var j = lane % TEAM; j < end; j += TEAM) {
        total += f32(x[first + j]);
    }
    let mean = sum_of(lane, total) / f32(K);
    var squares = 0.0;
    for (var j = lane % TEAM; j < end; j += TEAM) {
        let v = f32(x[first + j]) - mean;
        squares = fma(v, v, squares);
    }
    let factor = inverse_root(sum_of(lane, squares) / f32(K) + EPS);
    for (var j = lane % TEAM; j < end; j += TEAM) {
        let v = (f32(x[first + j]) - mean) * factor;
        y[first + j] = to_act(fma(v, weight(run, j), bias(run, j)));
    }
}
