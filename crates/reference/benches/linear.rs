//! Speed of `linear` at decode and prefill sizes, beside the time to stream the weight alone.

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use tapml_graph::op::Linear;
use tapml_graph::{Op, Symbols};
use tapml_reference::{PackedRows, Quantized, Real, Value, eval};

fn main() {
    divan::main();
}

const SIZES: [(usize, usize, usize); 8] = [
    (1, 896, 320),
    (9, 896, 320),
    (16, 896, 320),
    (32, 896, 320),
    (512, 896, 320),
    (1, 4096, 4096),
    (16, 4096, 4096),
    (512, 4096, 4096),
];

fn fill_rows<T: Real>(rows: usize, columns: usize) -> Value<T> {
    let values = (0..rows * columns).map(|i| T::from_f64((i % 251) as f64 / 125.0 - 1.0)).collect();
    Value::float(vec![rows, columns], values).expect("the shape fits the values")
}

/// Items are multiply-adds, bytes those of the weight.
#[divan::bench(types = [f32, f64], args = SIZES)]
fn linear<T: Real>(bencher: Bencher, (n, outputs, k): (usize, usize, usize)) {
    let op = Op::from(Linear::default());
    let inputs = [fill_rows::<T>(n, k), fill_rows::<T>(outputs, k)];
    let symbols = Symbols::np(n as u64, 0);
    bencher
        .counter(ItemsCount::new(n * outputs * k))
        .counter(BytesCount::new(outputs * k * size_of::<T>()))
        .bench(|| eval(&op, &symbols, black_box(&inputs)).expect("shapes fit"));
}

/// The same with weights of 4 bits in groups of 32; bytes are those of words and scales as held.
#[divan::bench(args = [(1, 4096, 4096), (4, 4096, 4096), (1, 8192, 2048), (512, 4096, 4096)])]
fn bench_packed(bencher: Bencher, (n, outputs, k): (usize, usize, usize)) {
    let q: Vec<u32> = (0..outputs * k / 8).map(|i| (i as u32).wrapping_mul(0x9e37_79b9)).collect();
    let scale = vec![0.01; outputs * k / 32];
    let packed =
        PackedRows::new(Quantized { q: &q, scale: &scale, zero: None, k, bits: 4, group: 32, float: false });
    let (packed, x) = (packed.expect("sizes agree"), vec![0.5; n * k]);
    bencher
        .counter(ItemsCount::new(n * outputs * k))
        .counter(BytesCount::new(outputs * k / 2 + outputs * k / 8))
        .bench(|| packed.times(black_box(&x), n).expect("shapes fit"));
}

/// The memory floor: both threads add up a weight.
#[divan::bench(types = [f32, f64], args = [(896, 320), (4096, 4096)])]
fn stream<T: Real>(bencher: Bencher, (outputs, k): (usize, usize)) {
    use rayon::prelude::*;
    let weight = fill_rows::<T>(outputs, k);
    let values = weight.as_float().expect("numbers").values();
    let sum = |part: &[T]| {
        let mut lanes = [T::ZERO; 64];
        for chunk in part.as_chunks::<64>().0 {
            lanes.iter_mut().zip(chunk).for_each(|(sum, &v)| *sum += v);
        }
        lanes.into_iter().fold(T::ZERO, |sum, lane| sum + lane)
    };
    bencher.counter(BytesCount::new(size_of_val(values))).bench(|| {
        black_box(values).par_chunks(16384).map(sum).max_by(|a, b| a.partial_cmp(b).expect("finite"))
    });
}
