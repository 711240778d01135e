// y = (x - mean) * scale / sqrt(mean of (x - mean)^2 + EPS) + bias over rows of K elements, a workgroup each.
override K: u32;
override ROWS: u32;
override EPS: f32;
override HAS_BIAS: u32;
override BY_ROW: u32 = 0u; // 0: a factor for each column, else one for each of so many rows

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> scale: array<act>;
@group(0) @binding(2) var<storage, read> bias: array<act>; // not read unless HAS_BIAS
@group(0) @binding(3) var<storage, read_write> y: array<act>;
@group(0) @binding(4) var<uniform> symbols: Symbols;

var<workgroup> parts: array<f32, 256>;

fn sum_of_lanes(lane: u32, value: f32) -> f32 {
    parts[lane] = value;
    workgroupBarrier();
    for (var step = 128u; step > 0u; step >>= 1u) {
        if lane < step {
            parts[lane] += parts[lane + step];
        }
        workgroupBarrier();
    }
    let total = parts[0];
    workgroupBarrier();
    return total;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y * 65535u + group.x;
    let end = select(0u, K, row < ROWS);
    let first = min(row, ROWS - 1u) * K;
    var sum = 0.0;
    for (var j = lane; j < end; j += 256u) {
        sum += f32(x[first + j]);
    }
    let mean = sum_of_lanes(lane, sum) / f32(K);
    sum = 0.0;
    for (var j = lane; j < end; j += 256u) {
        let v = f32(x[first + j]) - mean;
        sum = fma(v, v, sum);
    }
    let factor = 1.0 / sqrt(sum_of_lanes(lane, sum) / f32(K) + EPS);
    for (var j = lane; j < end; j += 256u) {
        var c = j;
        if BY_ROW != 0u {
            c = row % max(BY_ROW, 1u);
        }
        var b = 0.0;
        if HAS_BIAS == 1u {
            b = f32(bias[c]);
        }
        y[first + j] = to_act(fma((f32(x[first + j]) - mean) * factor, f32(scale[c]), b));
    }
}
