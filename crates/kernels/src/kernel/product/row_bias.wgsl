
fn bias0(output: u32) -> f32 {
    if B_DTYPE == 0u {
        return bitcast<f32>(b0[output]);
    }
    let half = select(b0[output >> 1u], b0[output >> 1u] >> 16u, (output & 1u) == 1u);
    return select(bitcast<f32>(half << 16u), unpack2x16float(half).x, B_DTYPE == 1u);
}
