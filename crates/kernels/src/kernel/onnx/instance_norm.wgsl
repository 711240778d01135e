// y = (x - mean) * scale / sqrt(mean of (x - mean)^2 + EPS) + bias over rows of K elements, a workgroup each. GROUPS rows follow
// each other in an element of a batch; scale and bias are those of a row, or of each CHANNEL elements of it.
override K: u32;
override ROWS: u32;
override GROUPS: u32;
override CHANNEL: u32;
override EPS: f32;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> scale: array<act>;
@group(0) @binding(2) var<storage, read> bias: array<act>;
@group(0) @binding(3) var<storage, read_write> y: array<act>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y * 65535u + group.x;
    let end = select(0u, K, row < ROWS);
    let first = min(row, ROWS - 1u) * K;
    var total = 0.0;
    for (var j = lane; j < end; j += 256u) {
        total += f32(x[first + j]);
    }
    let mean = sum_of(lane, total) / f32(K);
    var squares = 0.0;
    for (var j = lane; j < end; j += 256u) {
        let v = f32(x[first + j]) - mean;
        squares = fma(v, v, squares);
    }
    let factor = inverse_root(sum_of(lane, squares) / f32(K) + EPS);
    let channels = row % GROUPS * (K / CHANNEL);
    for (var j = lane; j < end; j += 256u) {
        let channel = channels + j / CHANNEL;
        y[first + j] = to_act(fma((f32(x[first + j]) - mean) * factor, f32(scale[channel]), f32(bias[channel])));
    }
}
