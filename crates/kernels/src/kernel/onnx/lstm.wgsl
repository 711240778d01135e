// A long short-term memory: https://onnx.ai/onnx/operators/onnx__LSTM.html, with its default activations.
override HAS_C: u32;

@group(0) @binding(0) var<storage, read> x: array<act>; // [STEPS, BATCH, INPUTS], or the batch first
@group(0) @binding(1) var<storage, read> w: array<act>; // [DIRECTIONS, 4 HIDDEN, INPUTS]: gates i, o, f, c
@group(0) @binding(2) var<storage, read> r: array<act>; // [DIRECTIONS, 4 HIDDEN, HIDDEN]
@group(0) @binding(3) var<storage, read> bias: array<act>; // [DIRECTIONS, 8 HIDDEN]; not read unless HAS_BIAS
@group(0) @binding(4) var<storage, read> lengths: array<u32>; // [BATCH]; not read unless HAS_LENGTHS
@group(0) @binding(5) var<storage, read> first_h: array<act>; // [DIRECTIONS, BATCH, HIDDEN]; not read unless HAS_H
@group(0) @binding(6) var<storage, read> first_c: array<act>; // as first_h; not read unless HAS_C
@group(0) @binding(7) var<storage, read_write> y: array<act>; // [STEPS, DIRECTIONS, BATCH, HIDDEN], last h, last c
@group(0) @binding(8) var<uniform> symbols: Symbols;

var<workgroup> hidden: array<f32, 1024>;
var<workgroup> cell: array<f32, 1024>;
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
        var c = 0.0;
        if HAS_C == 1u {
            c = f32(first_c[state + j]);
        }
        hidden[j] = h;
        cell[j] = c;
    }
    workgroupBarrier();
    let steps = steps_of(b);
    for (var t = 0u; t < steps; t++) {
        let step = step_at(t, steps, d);
        for (var j = lane; j < HIDDEN; j += 256u) {
            let row = vec4<u32>(0u, 1u, 2u, 3u) * HIDDEN + 4u * d * HIDDEN + j;
            var gates = vec4<f32>();
            if HAS_BIAS == 1u {
                let at = vec4<u32>(0u, 1u, 2u, 3u) * HIDDEN + 8u * d * HIDDEN + j;
                let again = at + 4u * HIDDEN;
                gates = vec4<f32>(f32(bias[at.x]), f32(bias[at.y]), f32(bias[at.z]), f32(bias[at.w]));
                gates += vec4<f32>(f32(bias[again.x]), f32(bias[again.y]), f32(bias[again.z]), f32(bias[again.w]));
            }
            for (var k = 0u; k < INPUTS; k++) {
                let at = row * INPUTS + k;
                let weights = vec4<f32>(f32(w[at.x]), f32(w[at.y]), f32(w[at.z]), f32(w[at.w]));
                gates = fma(vec4<f32>(f32(x[input_at(step, b) + k])), weights, gates);
            }
            for (var k = 0u; k < HIDDEN; k++) {
                let at = row * HIDDEN + k;
                let weights = vec4<f32>(f32(r[at.x]), f32(r[at.y]), f32(r[at.z]), f32(r[at.w]));
                gates = fma(vec4<f32>(hidden[k]), weights, gates);
            }
            let kept = logistic(clipped(gates.z)) * cell[j];
            let c = fma(logistic(clipped(gates.x)), tanh_accurate(clipped(gates.w)), kept);
            cell[j] = c;
            next[j] = logistic(clipped(gates.y)) * tanh_accurate(c);
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
        y[all + DIRECTIONS * BATCH * HIDDEN + state + j] = to_act(cell[j]);
    }
}
