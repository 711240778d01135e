// sum = x + skip + bias and y = (sum - mean) / sqrt(mean((sum - mean)^2) + EPS) * gamma + beta over every K columns, one
// workgroup for each row. Unless CENTRED the mean counts as 0.
override K: u32; // columns of a row
override ROWS: u32;
override SKIPS: u32; // elements of skip, which is read again behind its last
override EPS: f32;
override CENTRED: u32;
override HAS_BIAS: u32;
override HAS_BETA: u32;
override HAS_SUM: u32; // 1: the sum is written too

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> skip: array<act>;
@group(0) @binding(2) var<storage, read> gamma: array<act>;
@group(0) @binding(3) var<storage, read> beta: array<act>; // not read unless HAS_BETA
@group(0) @binding(4) var<storage, read> bias: array<act>; // not read unless HAS_BIAS
@group(0) @binding(5) var<storage, read_write> sum: array<act>; // not written unless HAS_SUM
@group(0) @binding(6) var<storage, read_write> y: array<act>;
@group(0) @binding(7) var<uniform> symbols: Symbols;

// Column j of a row that begins at element `row`.
fn sum_at(row: u32, j: u32) -> f32 {
    var v = f32(x[row + j]) + f32(skip[(row + j) % SKIPS]);
    if HAS_BIAS == 1u {
        v += f32(bias[j]);
    }
    return v;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let place = group.y * 65535u + group.x;
    let row = min(place, ROWS - 1u) * K;
    let end = select(0u, K, place < ROWS);
    var mean = 0.0;
    if CENTRED == 1u {
        var total = 0.0;
        for (var j = lane; j < end; j += 256u) {
            total += sum_at(row, j);
        }
        mean = sum_of(lane, total) / f32(K);
    }
    var squares = 0.0;
    for (var j = lane; j < end; j += 256u) {
        let v = sum_at(row, j) - mean;
        squares = fma(v, v, squares);
    }
    let factor = inverse_root(sum_of(lane, squares) / f32(K) + EPS);
    for (var j = lane; j < end; j += 256u) {
        let v = sum_at(row, j);
        if HAS_SUM == 1u {
            sum[row + j] = to_act(v);
        }
        var shift = 0.0;
        if HAS_BETA == 1u {
            shift = f32(beta[j]);
        }
        y[row + j] = to_act(fma((v - mean) * factor, f32(gamma[j]), shift));
    }
}
