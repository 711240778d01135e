// Sums of integers as the numbers that they stand for, and the biases of input and state: [DIRECTIONS, ROWS, COLUMNS].
override COUNT: u32; // elements
override ROWS: u32;
override COLUMNS: u32;
override HAS_BIAS: u32;
override EACH: u32; // whether each column has a scale

@group(0) @binding(0) var<storage, read> sums: array<i32>;
@group(0) @binding(1) var<storage, read> x_scale: array<f32>;
@group(0) @binding(2) var<storage, read> w_scale: array<f32>; // [DIRECTIONS] or [DIRECTIONS, COLUMNS]
@group(0) @binding(3) var<storage, read> bias: array<f32>; // [DIRECTIONS, 2 COLUMNS]; not read unless HAS_BIAS
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<uniform> symbols: Symbols;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < 4u; i++) {
        let e = group.x * 1024u + i * 256u + lane;
        if e < COUNT {
            let direction = e / COLUMNS / ROWS;
            let column = e % COLUMNS;
            var v = 0.0;
            if HAS_BIAS == 1u {
                let at = 2u * direction * COLUMNS + column;
                v = bias[at] + bias[at + COLUMNS];
            }
            let scale = x_scale[0] * w_scale[select(direction, direction * COLUMNS + column, EACH == 1u)];
            y[e] = fma(f32(sums[e]), scale, v);
        }
    }
}
