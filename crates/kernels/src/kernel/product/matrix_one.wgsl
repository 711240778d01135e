
override HAS_BIAS: u32 = 0u;
override B_DTYPE: u32 = 0u; // 0: f32, 1: f16, 2: bf16

fn bias(column: u32) -> f32 {
    if HAS_BIAS == 0u {
        return 0.0;
    }
    if B_DTYPE == 0u {
        return bitcast<f32>(b[column]);
    }
    let half = (b[column / 2u] >> (column % 2u * 16u)) & 0xffffu;
    return select(bitcast<f32>(half << 16u), unpack2x16float(half).x, B_DTYPE == 1u);
}

// Stores a result of 16 by 16 whose first row and column these are.
fn keep(row: u32, rows: u32, column: u32, at: u32, lane: u32) {
    for (var i = lane % 32u; i < 256u; i += 32u) {
        if row + i / 16u < rows && column + i % 16u < O {
            let value = results[at + i] + bias(column + i % 16u);
            y[(row + i / 16u) * O + column + i % 16u] = to_out(value);
        }
    }
}
