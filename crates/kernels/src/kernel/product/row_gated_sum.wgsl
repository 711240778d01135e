
// Even quads are gates, the odd ones behind them what they let pass.
fn quad_sum(quad: u32, part: u32, within: u32, size: u32) -> vec4<f32> {
    if (quad & 1u) == 1u {
        return partial1(quad / 2u, part, within, size);
    }
    return partial0(quad / 2u, part, within, size);
}
