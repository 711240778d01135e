//! Whole kernels of the sort that models use, against plain host code.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Arg, Run, bits};

const MATVEC: &str = "
override K: u32 = 64u;
@group(0) @binding(0) var<storage, read> w: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
var<workgroup> part: array<f32, 64>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var sum = 0.0;
    for (var i = lane; i < K; i += 64u) {
        sum += w[group.x * K + i] * x[i];
    }
    part[lane] = sum;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half >>= 1u) {
        if (lane < half) {
            part[lane] += part[lane + half];
        }
        workgroupBarrier();
    }
    if (lane == 0u) {
        y[group.x] = part[0];
    }
}
";

fn pseudo(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

#[test]
fn matrix_times_vector_with_a_tree_reduction() {
    for (rows, k) in [(5, 64), (3, 1000), (17, 7)] {
        let (w, x) = (pseudo(rows * k, 1), pseudo(k, 2));
        let mut run = Run::new(
            MATVEC,
            64,
            vec![Arg::Read(bits(&w)), Arg::Read(bits(&x)), Arg::ReadWrite(vec![0; rows])],
        );
        run.constants = vec![("K".into(), k as f64)];
        let y = run.groups(rows as u32).floats(2);
        for (row, &y) in y.iter().enumerate() {
            let want: f64 = (0..k).map(|i| f64::from(w[row * k + i]) * f64::from(x[i])).sum();
            assert!((f64::from(y) - want).abs() < 1e-4, "row {row} of {rows}x{k}: {y} for {want}");
        }
    }
}
