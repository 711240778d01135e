
override OCTETS: u32;

// The row of w that belongs to a column; those beyond the last are replaced by the last.
fn w_row(octet: u32, column: u32) -> u32 {
    return min(8u * octet + column, O - 1u);
}

fn bias(output: u32) -> f32 {
    if HAS_BIAS == 0u {
        return 0.0;
    }
    let at = FIRST + output;
    if B_DTYPE == 0u {
        return bitcast<f32>(b[at]);
    }
    let half = select(b[at >> 1u], b[at >> 1u] >> 16u, (at & 1u) == 1u);
    return select(bitcast<f32>(half << 16u), unpack2x16float(half).x, B_DTYPE == 1u);
}

// Stores columns i and i + 4.
fn store(row: u32, octet: u32, i: u32, low: f32, high: f32) {
    let output = 8u * octet + i;
    let at = row * WIDTH + FIRST + output;
    if output < O {
        y[at] = to_out(low + bias(output));
    }
    if output + 4u < O {
        y[at + 4u] = to_out(high + bias(output + 4u));
    }
}
