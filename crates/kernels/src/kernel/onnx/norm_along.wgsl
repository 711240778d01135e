// x along some dimensions, a workgroup for each index over the others: divided by the sum of magnitudes or the root of the sum of
// squares, or less the mean and divided by the deviation.
override ROWS: u32; // indices over the others
override TERMS: u32; // elements along the dimensions
override KEPT: u32; // the other dimensions
override FORM: u32; // 1: sum of magnitudes, 2: root of the sum of squares, 0: mean and deviation

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> sizes: array<u32>; // of the others, then of those along which; their strides
@group(0) @binding(2) var<storage, read_write> y: array<act>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y * 65535u + group.x;
    let end = select(0u, TERMS, row < ROWS);
    let origin = place(min(row, ROWS - 1u), 0u, KEPT);
    var total = 0.0;
    for (var j = lane; j < end && FORM == 0u; j += 256u) {
        total += f32(x[origin + place(j, KEPT, DIMS)]);
    }
    let mean = sum_of(lane, total) / f32(TERMS);
    total = 0.0;
    for (var j = lane; j < end; j += 256u) {
        let v = f32(x[origin + place(j, KEPT, DIMS)]) - mean;
        total += select(v * v, abs(v), FORM == 1u);
    }
    var size = sum_of(lane, total);
    if FORM == 2u {
        size = sqrt(size);
    } else if FORM == 0u {
        size = sqrt(size / f32(TERMS)) + 1e-9;
    }
    // Zeros have no size, and stay zeros.
    size = select(size, 1.0, size == 0.0);
    for (var j = lane; j < end; j += 256u) {
        let at = origin + place(j, KEPT, DIMS);
        y[at] = to_act((f32(x[at]) - mean) / size);
    }
}
