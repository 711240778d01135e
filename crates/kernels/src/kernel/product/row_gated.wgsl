
// Even quads are gates, the odd ones behind them what they let pass.
fn quad_sum(quad: u32, part: u32, within: u32, size: u32) -> vec4<f32> {
    if (quad & 1u) == 1u {
        return partial1(quad / 2u, part, within, size);
    }
    return partial0(quad / 2u, part, within, size);
}

// Stores what a gate and its neighbour give together.
fn store(quad: u32, i: u32, column: u32) {
    let output = 4u * (quad / 2u) + column;
    if (quad & 1u) == 0u && output < O0 {
        let low = total(i, column);
        let e = exp_accurate(-abs(low));
        let gated = select(low, low * e, low < 0.0) / (1.0 + e) * total(i + 1u, column);
        y0[output] = to_out(gated);
    }
}
