// Values of the symbols in this run: n tokens in this step, p tokens cached before it, s rows whose logits are wanted.
struct Symbols { n: u32, p: u32, s: u32, reserved: u32 }

// The rows that a kernel treats are ROWS_N * n + ROWS_P * p + ROWS_S * s + ROWS_C.
override ROWS_N: u32 = 0u;
override ROWS_P: u32 = 0u;
override ROWS_S: u32 = 0u;
override ROWS_C: u32 = 0u;

fn row_count(s: Symbols) -> u32 {
    return ROWS_N * s.n + ROWS_P * s.p + ROWS_S * s.s + ROWS_C;
}

