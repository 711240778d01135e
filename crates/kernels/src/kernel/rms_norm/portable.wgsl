// y = x * (OFFSET + w) / sqrt(mean(x^2) + EPS) over every K columns. Such a run is treated by a team of TEAM lanes;
// workgroup x treats runs x * 256 / TEAM to (x + 1) * 256 / TEAM - 1.
override K: u32; // columns of a run
override EPS: f32;
override OFFSET: f32 = 0.0;
override HAS_WEIGHT: u32 = 1u;
override W_RUNS: u32 = 1u; // runs that w has values for: 1 if all are alike, else those of a row

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> w: array<u32>; // not read unless HAS_WEIGHT
@group(0) @binding(2) var<storage, read_write> y: array<act>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

// The factor of column j of a run.
fn weight(run: u32, j: u32) -> f32 {
    if HAS_WEIGHT == 0u {
        return 1.0;
    }
    let at = run % W_RUNS * K + j;
    return OFFSET + weight_value(w[weight_word(at)], at);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let run = group.x * (256u / TEAM) + lane / TEAM;
    let first = run * K;
    let end = select(0u, K, run < row_count(symbols));
    var squares = 0.0;
    for (var j = lane % TEAM; j < end; j += TEAM) {
        let v = f32(x[first + j]);
        squares = fma(v, v, squares);
    }
    let factor = inverse_root(sum_of(lane, squares) / f32(K) + EPS);
    for (var j = lane % TEAM; j < end; j += TEAM) {
        y[first + j] = to_act(f32(x[first + j]) * factor * weight(run, j));
    }
}
