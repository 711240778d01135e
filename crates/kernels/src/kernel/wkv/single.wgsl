override U_DTYPE: u32; // as W_DTYPE

@group(0) @binding(4) var<storage, read> u: array<u32>;

fn bonus_at(e: u32) -> f32 {
    if U_DTYPE == 0u {
        return bitcast<f32>(u[e]);
    }
    let half = select(u[e >> 1u], u[e >> 1u] >> 16u, (e & 1u) == 1u);
    return select(bitcast<f32>(half << 16u), unpack2x16float(half).x, U_DTYPE == 1u);
}
