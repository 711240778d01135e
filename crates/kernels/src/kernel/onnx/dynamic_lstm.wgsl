// A long short-term memory of one sequence whose states go through 8 bits, with a scale of their own, before they meet weights of
// 8 bits. Workgroup (0, d) treats direction d; its lanes share the hidden units.
override HAS_C: u32;
override EACH: u32; // whether each column has a scale

@group(0) @binding(0) var<storage, read> inputs: array<f32>; // [DIRECTIONS, STEPS, 4 HIDDEN]: gates i, o, f, c without the state
@group(0) @binding(1) var<storage, read> r: array<i32>; // [DIRECTIONS, HIDDEN, 4 HIDDEN] without the zero point
@group(0) @binding(2) var<storage, read> r_scale: array<f32>; // [DIRECTIONS] or [DIRECTIONS, 4 HIDDEN]
@group(0) @binding(3) var<storage, read> lengths: array<u32>; // [1]; not read unless HAS_LENGTHS
@group(0) @binding(4) var<storage, read> first_h: array<f32>; // [DIRECTIONS, 1, HIDDEN]; not read unless HAS_H
@group(0) @binding(5) var<storage, read> first_c: array<f32>; // as first_h; not read unless HAS_C
@group(0) @binding(6) var<storage, read_write> y: array<f32>; // [STEPS, DIRECTIONS, 1, HIDDEN], last h, last c
@group(0) @binding(7) var<uniform> symbols: Symbols;

var<workgroup> hidden: array<f32, 1024>;
var<workgroup> cell: array<f32, 1024>;
var<workgroup> bytes: array<i32, 1024>;
var<workgroup> parts: array<vec2<f32>, 256>;

// Leaves the states as integers without their zero point, and gives their scale.
fn quantize_state(lane: u32) -> f32 {
    var found = vec2<f32>();
    for (var j = lane; j < HIDDEN; j += 256u) {
        found = vec2<f32>(min(found.x, hidden[j]), max(found.y, hidden[j]));
    }
    parts[lane] = found;
    workgroupBarrier();
    for (var step = 128u; step > 0u; step >>= 1u) {
        if lane < step {
            let other = parts[lane + step];
            parts[lane] = vec2<f32>(min(parts[lane].x, other.x), max(parts[lane].y, other.y));
        }
        workgroupBarrier();
    }
    let size = (parts[0].y - parts[0].x) / 255.0;
    // States that are all zeros have no scale.
    let by = select(size, 1.0, size == 0.0);
    let zero = rounded(-parts[0].x / by, 0);
    for (var j = lane; j < HIDDEN; j += 256u) {
        bytes[j] = rounded(hidden[j] / by, zero) - zero;
    }
    workgroupBarrier();
    return size;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let d = group.y;
    let state = state_at(d, 0u);
    for (var j = lane; j < HIDDEN; j += 256u) {
        var h = 0.0;
        if HAS_H == 1u {
            h = first_h[state + j];
        }
        var c = 0.0;
        if HAS_C == 1u {
            c = first_c[state + j];
        }
        hidden[j] = h;
        cell[j] = c;
    }
    workgroupBarrier();
    let steps = steps_of(0u);
    let columns = 4u * HIDDEN;
    for (var t = 0u; t < steps; t++) {
        let step = step_at(t, steps, d);
        let scale = quantize_state(lane);
        for (var j = lane; j < HIDDEN; j += 256u) {
            let column = vec4<u32>(0u, 1u, 2u, 3u) * HIDDEN + j;
            var sums = vec4<i32>();
            for (var k = 0u; k < HIDDEN; k++) {
                let at = column + (d * HIDDEN + k) * columns;
                sums += bytes[k] * vec4<i32>(r[at.x], r[at.y], r[at.z], r[at.w]);
            }
            let own = select(vec4<u32>(d), column + d * columns, EACH == 1u);
            let scales = vec4<f32>(r_scale[own.x], r_scale[own.y], r_scale[own.z], r_scale[own.w]);
            let at = column + (d * STEPS + step) * columns;
            let before = vec4<f32>(inputs[at.x], inputs[at.y], inputs[at.z], inputs[at.w]);
            let gates = fma(vec4<f32>(sums), scale * scales, before);
            let kept = logistic(clipped(gates.z)) * cell[j];
            let c = fma(logistic(clipped(gates.x)), tanh_accurate(clipped(gates.w)), kept);
            let h = logistic(clipped(gates.y)) * tanh_accurate(c);
            // The others read the states as integers.
            cell[j] = c;
            hidden[j] = h;
            y[output_at(step, d, 0u) + j] = h;
        }
        workgroupBarrier();
    }
    let all = STEPS * DIRECTIONS * HIDDEN;
    for (var j = lane; j < HIDDEN; j += 256u) {
        for (var t = steps; t < STEPS; t++) {
            y[output_at(t, d, 0u) + j] = 0.0;
        }
        y[all + state + j] = hidden[j];
        y[all + DIRECTIONS * HIDDEN + state + j] = cell[j];
    }
}
