//! Matrix units: what their sums lose, and what adding short runs of them as f32 keeps.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Arg, Run};

/// Elements along K.
const K: usize = 4096;

/// Numbers of f16 from 1 to 2 of either sign: their bits, and what they are.
fn halves(count: usize, mut state: u64) -> Vec<(u16, f64)> {
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u16
    };
    let number = |bits: u16| {
        let size = 1.0 + f64::from(bits & 0x3ff) / 1024.0;
        if bits & 0x8000 != 0 { -size } else { size }
    };
    (0..count).map(|_| (next() & 0x83ff) | 0x3c00).map(|bits| (bits, number(bits))).collect()
}

/// Products of 16 rows by 16 columns along K, of which matrix units add up runs of so many elements.
fn products(a: &[(u16, f64)], b: &[(u16, f64)], run: usize) -> Vec<f32> {
    let text = format!(
        "enable f16; enable wgpu_cooperative_matrix;
        @group(0) @binding(0) var<storage, read> a: array<f16>;
        @group(0) @binding(1) var<storage, read> b: array<f16>;
        @group(0) @binding(2) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(32)
        fn main() {{
            var c = coop_mat16x16<f32, C>();
            for (var k = 0u; k < {K}u; k += {run}u) {{
                var sum = coop_mat16x16<f32, C>();
                for (var i = k; i < k + {run}u; i += 16u) {{
                    let rows = coopLoadT<coop_mat16x16<f16, A>>(&a[i], {K}u);
                    let columns = coopLoad<coop_mat16x16<f16, B>>(&b[i], {K}u);
                    sum = coopMultiplyAdd(rows, columns, sum);
                }}
                c = c + sum;
            }}
            coopStoreT(c, &y[0], 16u);
        }}"
    );
    let words = |all: &[(u16, f64)]| -> Vec<u32> {
        all.chunks(2).map(|pair| u32::from(pair[0].0) | u32::from(pair[1].0) << 16).collect()
    };
    let args = vec![Arg::Read(words(a)), Arg::Read(words(b)), Arg::ReadWrite(vec![0; 256])];
    let run = Run { f16: true, subgroups: true, ..Run::new(&text, 32, args) };
    run.options("matrices=on").floats(2)
}

/// The mean error away from zero, in units of roundoff of a typical result.
fn drift(a: &[(u16, f64)], b: &[(u16, f64)], found: &[f32]) -> f64 {
    let exact = |i: usize| -> f64 {
        let (row, column) = (&a[i / 16 * K..][..K], &b[i % 16 * K..][..K]);
        row.iter().zip(column).map(|(x, w)| x.1 * w.1).sum()
    };
    let errors = found.iter().enumerate().map(|(i, &y)| (f64::from(y) - exact(i)) * exact(i).signum());
    let typical = (0..found.len()).map(|i| exact(i).powi(2)).sum::<f64>() / found.len() as f64;
    errors.sum::<f64>() / found.len() as f64 / typical.sqrt() * 16_777_216.0
}

#[test]
fn long_sums_of_matrix_units_drift_towards_zero_and_short_ones_do_not() {
    let (a, b) = (halves(16 * K, 0x9e37_79b9), halves(16 * K, 0x7f4a_7c15));
    let [long, short] = [K, 32].map(|run| drift(&a, &b, &products(&a, &b, run)));
    assert!(long < -20.0, "{long}");
    assert!(short.abs() < 2.0, "{short}");
}
