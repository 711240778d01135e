// What recurrent cells share: https://onnx.ai/onnx/operators/onnx__LSTM.html. Workgroup (b, d) treats sequence b of the batch in
// direction d; its lanes share the hidden units.
override STEPS: u32; // elements of a sequence
override BATCH: u32;
override INPUTS: u32;
override HIDDEN: u32; // up to 1024
override DIRECTIONS: u32;
override REVERSE: u32; // 1: the first direction is backwards
override BATCH_FIRST: u32; // whether the batch stands in front of the steps, and of the directions
override HAS_BIAS: u32;
override HAS_H: u32;
override HAS_LENGTHS: u32; // 0: every sequence has STEPS elements
override CLIP: f32; // most magnitude of what activations are given; 0: any

// Elements of sequence b.
fn steps_of(b: u32) -> u32 {
    if HAS_LENGTHS == 0u {
        return STEPS;
    }
    return min(u32(max(bitcast<i32>(lengths[b]), 0)), STEPS);
}

// The element of a sequence that direction d comes to after t others.
fn step_at(t: u32, steps: u32, d: u32) -> u32 {
    return select(t, steps - 1u - t, d == 1u || REVERSE == 1u);
}

fn input_at(step: u32, b: u32) -> u32 {
    return select(step * BATCH + b, b * STEPS + step, BATCH_FIRST == 1u) * INPUTS;
}

fn output_at(step: u32, d: u32, b: u32) -> u32 {
    let after = (step * DIRECTIONS + d) * BATCH + b;
    return select(after, (b * STEPS + step) * DIRECTIONS + d, BATCH_FIRST == 1u) * HIDDEN;
}

fn state_at(d: u32, b: u32) -> u32 {
    return select(d * BATCH + b, b * DIRECTIONS + d, BATCH_FIRST == 1u) * HIDDEN;
}

fn clipped(v: f32) -> f32 {
    let low = select(v, -CLIP, v < -CLIP);
    return select(v, select(low, CLIP, low > CLIP), CLIP > 0.0);
}

fn logistic(v: f32) -> f32 {
    let e = exp_accurate(-abs(v));
    return select(1.0, e, v < 0.0) / (1.0 + e);
}

