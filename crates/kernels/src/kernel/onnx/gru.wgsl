// A gated recurrent unit: https://onnx.ai/onnx/operators/onnx__GRU.html, with its default activations.
override LINEAR: u32; // whether the reset gate meets the product of the state in the place of the state

@group(0) @binding(0) var<storage, read> x: array<act>; // [STEPS, BATCH, INPUTS], or the batch first
@group(0) @binding(1) var<storage, read> w: array<act>; // [DIRECTIONS, 3 HIDDEN, INPUTS]: update, reset, hidden
@group(0) @binding(2) var<storage, read> r: array<act>; // [DIRECTIONS, 3 HIDDEN, HIDDEN]
@group(0) @binding(3) var<storage, read> bias: array<act>; // [DIRECTIONS, 6 HIDDEN]; not read unless HAS_BIAS
@group(0) @binding(4) var<storage, read> lengths: array<u32>; // [BATCH]; not read unless HAS_LENGTHS
@group(0) @binding(5) var<storage, read> first_h: array<act>; // [DIRECTIONS, BATCH, HIDDEN]; not read unless HAS_H
@group(0) @binding(6) var<storage, read_write> y: array<act>; // [STEPS, DIRECTIONS, BATCH, HIDDEN], last h
@group(0) @binding(7) var<uniform> symbols: Symbols;

var<workgroup> hidden: array<f32, 1024>;
// The update gate, then the next state.
var<workgroup> next: array<f32, 1024>;
// The state behind the reset gate, or the reset gate.
var<workgroup> kept: array<f32, 1024>;

// The biases of the input and of the state for a gate.
fn biases(d: u32, row: u32) -> vec2<f32> {
    if HAS_BIAS == 0u {
        return vec2<f32>();
    }
    let at = 6u * d * HIDDEN + row;
    return vec2<f32>(f32(bias[at]), f32(bias[at + 3u * HIDDEN]));
}

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
            let both = biases(d, j);
            let other = biases(d, HIDDEN + j);
            var gates = vec2<f32>(both.x + both.y, other.x + other.y);
            let row = vec2<u32>(0u, HIDDEN) + 3u * d * HIDDEN + j;
            for (var k = 0u; k < INPUTS; k++) {
                let at = row * INPUTS + k;
                gates = fma(vec2<f32>(f32(x[input_at(step, b) + k])), vec2<f32>(f32(w[at.x]), f32(w[at.y])), gates);
            }
            for (var k = 0u; k < HIDDEN; k++) {
                let at = row * HIDDEN + k;
                gates = fma(vec2<f32>(hidden[k]), vec2<f32>(f32(r[at.x]), f32(r[at.y])), gates);
            }
            next[j] = logistic(clipped(gates.x));
            kept[j] = logistic(clipped(gates.y)) * select(hidden[j], 1.0, LINEAR == 1u);
        }
        workgroupBarrier();
        for (var j = lane; j < HIDDEN; j += 256u) {
            let both = biases(d, 2u * HIDDEN + j);
            let row = (3u * d + 2u) * HIDDEN + j;
            var own = both.x;
            for (var k = 0u; k < INPUTS; k++) {
                own = fma(f32(x[input_at(step, b) + k]), f32(w[row * INPUTS + k]), own);
            }
            var recurrent = both.y;
            for (var k = 0u; k < HIDDEN; k++) {
                recurrent = fma(select(kept[k], hidden[k], LINEAR == 1u), f32(r[row * HIDDEN + k]), recurrent);
            }
            recurrent *= select(1.0, kept[j], LINEAR == 1u);
            let candidate = tanh_accurate(clipped(own + recurrent));
            // Only this lane reads it.
            let update = next[j];
            next[j] = fma(update, hidden[j], (1.0 - update) * candidate);
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
