
// Columns 0 to 3 of octet i are gates of outputs 4i to 4i + 3, columns 4 to 7 what they let pass.
override OCTETS: u32;

// The row of gate or up that belongs to a column; those beyond the last are replaced by the last.
fn w_row(octet: u32, column: u32) -> u32 {
    return min(4u * octet + column % 4u, O - 1u);
}

// Stores what columns i and i + 4 give together.
fn store(row: u32, octet: u32, i: u32, low: f32, high: f32) {
    let output = 4u * octet + i;
    if output < O {
        let e = exp_accurate(-abs(low));
        let gated = select(low, low * e, low < 0.0) / (1.0 + e) * high;
        y[row * WIDTH + FIRST + output] = to_act(gated);
    }
}
