
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
