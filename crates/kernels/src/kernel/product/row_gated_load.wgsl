
// Even quads are gates, the odd ones behind them what they let pass.
fn load_of(quad: u32, at: u32) -> Load {
    if (quad & 1u) == 1u {
        return load1(rows_of(quad / 2u, O1), at);
    }
    return load0(rows_of(quad / 2u, O0), at);
}
