//! Operators against naive loops written from their formulas, and their refusals.

use crate::common::{assert_close, matrix, numbers, random, run, vector};
use proptest::prelude::*;
use tapml_graph::op::{
    AddRmsNorm, Append, Attention, Columns, Embedding, GatedLinear, LastRow, Linear, RmsNorm, RopeAngles,
    Silu,
};
use tapml_graph::{DType, ErrorKind, Op, Symbols, TensorType};
use tapml_reference::{Value, eval};

fn naive_linear(x: &[f64], w: &[f64], n: usize, k: usize, o: usize) -> Vec<f64> {
    let at = |i: usize, j: usize| (0..k).map(|c| x[i * k + c] * w[j * k + c]).sum();
    (0..n).flat_map(|i| (0..o).map(move |j| (i, j))).map(|(i, j)| at(i, j)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn linear_equals_the_triple_loop(n in 0usize..150, k in 0usize..70, o in 0usize..140, bias: bool, seed: u8) {
        let (x, w, b) = (random(seed, n * k), random(seed ^ 1, o * k), random(seed ^ 2, o));
        let mut expected = naive_linear(&x, &w, n, k, o);
        if bias {
            expected.chunks_mut(o.max(1)).for_each(|row| row.iter_mut().zip(&b).for_each(|(y, b)| *y += b));
        }
        let wide = [matrix::<f64>(n, k, &x), matrix(o, k, &w), vector(&b)];
        let narrow = [matrix::<f32>(n, k, &x), matrix(o, k, &w), vector(&b)];
        let count = if bias { 3 } else { 2 };
        let symbols = Symbols::np(n as u64, 0);
        assert_close(&numbers(&run(Linear::default(), &symbols, &wide[..count])), &expected, 1e-13);
        assert_close(&numbers(&run(Linear::default(), &symbols, &narrow[..count])), &expected, 1e-5);
    }

    #[test]
    fn append_then_last_row_gives_the_new_row(p in 0usize..9, n in 1usize..9, k in 1usize..20, seed: u8) {
        let (cache, new) = (random(seed, p * k), random(seed ^ 1, n * k));
        let symbols = Symbols::np(n as u64, p as u64);
        let joined = run(Append {}, &symbols, &[matrix::<f64>(p, k, &cache), matrix(n, k, &new)]);
        assert_eq!(joined.shape(), [n + p, k]);
        assert_eq!(numbers(&joined), [cache, new.clone()].concat());
        let last = run(LastRow {}, &symbols, &[joined]);
        assert_eq!((last.shape(), numbers(&last).as_slice()), (&[1, k][..], &new[(n - 1) * k..]));
    }
}

#[test]
fn large_products_do_not_depend_on_the_number_of_threads() {
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let pools = [pool(1), pool(2), pool(5)];
    let (k, o) = (160, 333);
    for n in [1, 9, 40, 200] {
        let inputs = [matrix::<f32>(n, k, &random(1, n * k)), matrix(o, k, &random(2, o * k))];
        let symbols = Symbols::np(n as u64, 0);
        let found = pools.each_ref().map(|pool| pool.install(|| run(Linear::default(), &symbols, &inputs)));
        assert_eq!(numbers(&found[0]), numbers(&found[1]), "n = {n}");
        assert_eq!(numbers(&found[0]), numbers(&found[2]), "n = {n}");
    }
}

#[test]
fn a_nan_or_infinity_stays_in_its_row() {
    let (k, o) = (37, 50);
    for n in [3, 40, 130] {
        let mut x = random(1, n * k);
        (x[k], x[2 * k + 5]) = (f64::NAN, f64::INFINITY);
        let w = random(2, o * k);
        let found = numbers(&run(
            Linear::default(),
            &Symbols::np(n as u64, 0),
            &[matrix::<f32>(n, k, &x), matrix(o, k, &w)],
        ));
        for (i, row) in found.chunks(o).enumerate() {
            match i {
                1 => assert!(row.iter().all(|v| v.is_nan())),
                2 => assert!(row.iter().zip(w.chunks(k)).all(|(y, w)| *y == f64::INFINITY * w[5])),
                _ => assert!(row.iter().all(|v| v.is_finite()), "row {i} of {n}"),
            }
        }
    }
}

#[test]
fn fused_operators_equal_the_fused_formula() {
    let (n, k, o) = (3, 17, 5);
    let (a, b, w) = (random(1, n * k), random(2, n * k), random(3, k));
    let inputs = [matrix::<f64>(n, k, &a), matrix(n, k, &b), vector(&w)];
    let outputs = eval(&Op::from(AddRmsNorm::new(1e-2)), &Symbols::np(3, 0), &inputs).unwrap();
    let sum: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(numbers(&outputs[0]), sum);
    for (row, found) in sum.chunks(k).zip(numbers(&outputs[1]).chunks(k)) {
        let mean = row.iter().map(|v| v * v).sum::<f64>() / k as f64;
        let expected: Vec<f64> =
            row.iter().zip(&w).map(|(x, w)| x * w / (mean + f64::from(1e-2f32)).sqrt()).collect();
        assert_close(found, &expected, 1e-14);
    }
    let (x, gate, up) = (random(4, n * k), random(5, o * k), random(6, o * k));
    let inputs = [matrix::<f64>(n, k, &x), matrix(o, k, &gate), matrix(o, k, &up)];
    let expected: Vec<f64> = naive_linear(&x, &gate, n, k, o)
        .iter()
        .zip(naive_linear(&x, &up, n, k, o))
        .map(|(g, u)| g / (1.0 + (-g).exp()) * u)
        .collect();
    assert_close(&numbers(&run(GatedLinear {}, &Symbols::np(3, 0), &inputs)), &expected, 1e-14);
}

#[test]
fn columns_takes_the_same_part_of_every_group() {
    let x: Vec<f64> = (0..24).map(f64::from).collect();
    let columns = |group, first, count| {
        numbers(&run(Columns { group, first, count }, &Symbols::np(2, 0), &[matrix::<f64>(2, 12, &x)]))
    };
    assert_eq!(columns(6, 2, 2), [2.0, 3.0, 8.0, 9.0, 14.0, 15.0, 20.0, 21.0]);
    assert_eq!(columns(12, 11, 1), [11.0, 23.0]);
    assert_eq!(columns(4, 0, 4), x);
    let types = [TensorType::new(DType::F32, [2u64, 12])];
    for (group, first, count) in [(5, 0, 1), (0, 0, 1), (6, 2, 5), (6, 0, 0), (6, u32::MAX, 1)] {
        let op = Op::from(Columns { group, first, count });
        assert_eq!(op.infer(&types).unwrap_err().kind(), ErrorKind::InvalidInput, "{op:?}");
    }
}

#[test]
fn an_id_outside_the_table_is_refused_by_name() {
    let op = Op::from(Embedding { dtype: DType::F32 });
    let table = matrix::<f32>(4, 2, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    let found = eval(&op, &Symbols::np(2, 0), &[Value::ids(vec![3, 1]), table.clone()]).unwrap();
    assert_eq!(numbers(&found[0]), [6.0, 7.0, 2.0, 3.0]);
    let error = eval(&op, &Symbols::np(2, 0), &[Value::ids(vec![0, 4]), table]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), "embedding: id 4 at position 1 is outside the vocabulary of 4");
}

#[test]
fn empty_and_absurd_sizes_do_not_panic() {
    let none = matrix::<f32>(0, 3, &[]);
    assert!(eval(&LastRow {}.into(), &Symbols::np(0, 0), std::slice::from_ref(&none)).is_err());
    assert_eq!(run(Silu {}, &Symbols::np(0, 0), &[none]).shape(), [0, 3]);
    let empty = matrix::<f32>(2, 0, &[]);
    assert_eq!(run(RmsNorm::new(1e-5), &Symbols::np(2, 0), &[empty.clone(), vector(&[])]).shape(), [2, 0]);
    assert_eq!(run(Append {}, &Symbols::np(2, 2), &[empty.clone(), empty]).shape(), [4, 0]);
    let angles = Op::from(RopeAngles::new(vec![1.0; 4], 1.0));
    for n in [1 << 45, u64::MAX] {
        assert_eq!(eval::<f32>(&angles, &Symbols::np(n, 1), &[]).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
    let op = Attention::causal(2, 1, 2, 1.0);
    let inputs = [matrix::<f32>(1, 4, &[1.0; 4]), matrix(2, 2, &[1.0; 4]), matrix(2, 2, &[1.0; 4])];
    let error = eval(&op.into(), &Symbols::np(1, 2), &inputs).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("p = 2"), "{error}");
}
