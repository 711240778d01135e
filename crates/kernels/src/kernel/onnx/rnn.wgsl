// A plain recurrent cell: https://onnx.ai/onnx/operators/onnx__RNN.html, with its default activation.
@group(0) @binding(0) var<storage, read> x: array<act>; // [STEPS, BATCH, INPUTS], or the batch first
@group(0) @binding(1) var<storage, read> w: array<act>; // [DIRECTIONS, HIDDEN, INPUTS]
@group(0) @binding(2) var<storage, read> r: array<act>; // [DIRECTIONS, HIDDEN, HIDDEN]
@group(0) @binding(3) var<storage, read> bias: array<act>; // [DIRECTIONS, 2 HIDDEN]; not read unless HAS_BIAS
@group(0) @binding(4) var<storage, read> lengths: array<u32>; // [BATCH]; not read unless HAS_LENGTHS
@group(0) @binding(5) var<storage, read> first_h: array<act>; // [DIRECTIONS, BATCH, HIDDEN]; not read unless HAS_H
@group(0) @binding(6) var<storage, read_write> y: array<act>; // [STEPS, DIRECTIONS, BATCH, HIDDEN], last h
@group(0) @binding(7) var<uniform> symbols: Symbols;

var<workgroup> hidden: array<f32, 1024>;
var<workgroup> next: array<f32, 1024>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let b = group.x;
    let d = group.y;
    let state = state_at(d, b);
    for (var j = lane; j < HIDDEN; j += 256u) {
        var h = 0.0;
        if HAS_H == 1u {
            h = f32(first_h[state + j]);
        }
        hidden[j] = h;
    }
    workgroupBarrier();
    let steps = steps_of(b);
    for (var t = 0u; t < steps; t++) {
        let step = step_at(t, steps, d);
        for (var j = lane; j < HIDDEN; j += 256u) {
            var sum = 0.0;
            if HAS_BIAS == 1u {
                sum = f32(bias[2u * d * HIDDEN + j]) + f32(bias[(2u * d + 1u) * HIDDEN + j]);
            }
            let row = d * HIDDEN + j;
            for (var k = 0u; k < INPUTS; k++) {
                sum = fma(f32(x[input_at(step, b) + k]), f32(w[row * INPUTS + k]), sum);
            }
            for (var k = 0u; k < HIDDEN; k++) {
                sum = fma(hidden[k], f32(r[row * HIDDEN + k]), sum);
            }
            next[j] = tanh_accurate(clipped(sum));
        }
        // All have read the state of this step before any writes the next.
        workgroupBarrier();
        for (var j = lane; j < HIDDEN; j += 256u) {
            hidden[j] = next[j];
            y[output_at(step, d, b) + j] = to_act(next[j]);
        }
        workgroupBarrier();
    }
    let all = STEPS * DIRECTIONS * BATCH * HIDDEN;
    for (var j = lane; j < HIDDEN; j += 256u) {
        for (var t = steps; t < STEPS; t++) {
            y[output_at(t, d, b) + j] = to_act(0.0);
        }
        y[all + state + j] = to_act(hidden[j]);
    }
}
