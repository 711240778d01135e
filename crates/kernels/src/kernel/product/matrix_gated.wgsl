
// Stores what a gate of 16 by 16, and behind it what it lets pass, give together.
fn keep(row: u32, rows: u32, column: u32, at: u32, lane: u32) {
    for (var i = lane % 32u; i < 256u; i += 32u) {
        if row + i / 16u < rows && column + i % 16u < O {
            let gate = results[at + i];
            let e = exp_accurate(-abs(gate));
            let open = select(gate, gate * e, gate < 0.0) / (1.0 + e);
            y[(row + i / 16u) * O + column + i % 16u] = to_out(open * results[at + 256u + i]);
        }
    }
}
