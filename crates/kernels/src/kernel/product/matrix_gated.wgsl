
// Four elements of a unit in `results`, 32 apart.
fn held(at: u32, lane: u32) -> vec4<f32> {
    let first = at + lane % 32u;
    return vec4<f32>(results[first], results[first + 32u], results[first + 64u], results[first + 96u]);
}

// Stores what element i of a gate of 16 by 16 gives with what it lets pass.
fn keep_one(row: u32, rows: u32, column: u32, i: u32, gate: f32, passed: f32) {
    if row + i / 16u < rows && column + i % 16u < O {
        let e = exp_accurate(-abs(gate));
        let open = select(gate, gate * e, gate < 0.0) / (1.0 + e);
        y[(row + i / 16u) * O + column + i % 16u] = to_out(open * passed);
    }
}

// Stores a unit whose first row and column these are: gates as they were held, and in `results` what they let pass.
fn keep(row: u32, rows: u32, column: u32, at: u32, lane: u32, low: vec4<f32>, high: vec4<f32>) {
    for (var j = 0u; j < 4u; j++) {
        let i = lane % 32u + 32u * j;
        keep_one(row, rows, column, i, low[j], results[at + i]);
        keep_one(row, rows, column, i + 128u, high[j], results[at + i + 128u]);
    }
}
