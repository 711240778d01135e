//! Operators that only move rows and columns.

use crate::common::{matrix, numbers, run};
use tapml_graph::op::{Concat, MergeRows, Rows};
use tapml_graph::{DType, Op, Symbols, TensorType};
use tapml_reference::Value;

#[test]
fn concat_joins_group_by_group() {
    let a = matrix::<f64>(2, 4, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    let b = matrix(2, 2, &[10.0, 20.0, 30.0, 40.0]);
    let joined = |groups, shared| {
        numbers(&run(Concat { groups, shared }, &Symbols::np(2, 0), &[a.clone(), b.clone()]))
    };
    assert_eq!(joined(1, false), [0.0, 1.0, 2.0, 3.0, 10.0, 20.0, 4.0, 5.0, 6.0, 7.0, 30.0, 40.0]);
    assert_eq!(joined(2, false), [0.0, 1.0, 10.0, 2.0, 3.0, 20.0, 4.0, 5.0, 30.0, 6.0, 7.0, 40.0]);
    let shared = [0.0, 1.0, 10.0, 20.0, 2.0, 3.0, 10.0, 20.0, 4.0, 5.0, 30.0, 40.0, 6.0, 7.0, 30.0, 40.0];
    assert_eq!(joined(2, true), shared);
    let ty = |columns: u64| TensorType::new(DType::F32, [2, columns]);
    for (groups, a, b) in [(0, 4, 2), (3, 4, 3), (2, 4, 3)] {
        let op = Op::from(Concat { groups, shared: false });
        assert!(op.infer(&[ty(a), ty(b)]).unwrap_err().to_string().contains("`groups`"), "{groups}");
    }
    let absurd = Op::from(Concat { groups: 2, shared: true });
    assert!(absurd.infer(&[ty(2 << 40), ty(u64::MAX)]).unwrap_err().to_string().contains("overflows"));
}

#[test]
fn rows_are_taken_where_they_always_exist() {
    let x = matrix::<f64>(3, 2, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let found = run(Rows { first: 1, count: 2 }, &Symbols::np(1, 0), &[x]);
    assert_eq!((found.shape(), numbers(&found)), (&[2, 2][..], vec![2.0, 3.0, 4.0, 5.0]));
    let infer = |rows: &str, first, count| {
        let x = TensorType { dtype: DType::F32, shape: vec![rows.parse().unwrap(), 4u64.into()] };
        Op::from(Rows { first, count }).infer(&[x]).is_ok()
    };
    for (rows, first, count) in [("n", 0, 1), ("n+p", 0, 1), ("n+5", 3, 3), ("7", 6, 1)] {
        assert!(infer(rows, first, count), "{rows}");
    }
    for (rows, first, count) in
        [("n", 1, 1), ("p", 0, 1), ("n+5", 3, 4), ("7", 7, 1), ("7", 0, 0), ("7", u32::MAX, u32::MAX)]
    {
        assert!(!infer(rows, first, count), "{rows} {first} {count}");
    }
}

#[test]
fn rows_with_a_slot_are_replaced() {
    let x = matrix::<f64>(4, 1, &[0.0, 1.0, 2.0, 3.0]);
    let source = matrix(2, 1, &[10.0, 20.0]);
    let merged = run(MergeRows {}, &Symbols::np(4, 0), &[x, source, Value::ids(vec![u32::MAX, 1, 0, 2])]);
    assert_eq!(numbers(&merged), [0.0, 20.0, 10.0, 3.0]);
}
