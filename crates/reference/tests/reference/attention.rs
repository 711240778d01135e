//! `attention` against its formula with an explicit mask, and what it refuses.

use crate::common::{assert_close, matrix, numbers, random, run, vector};
use proptest::prelude::*;
use tapml_graph::op::Attention;
use tapml_graph::{DType, Dim, ErrorKind, Op, Symbol, Symbols, TensorType};
use tapml_reference::Value;

/// Queries, keys, values and sinks, and the position of the first query.
struct Case<'a> {
    q: &'a [f64],
    k: &'a [f64],
    v: &'a [f64],
    sinks: Option<&'a [f64]>,
    keys: usize,
    first: usize,
}

/// Whether a query at position `t` sees key `j`.
fn sees(op: &Attention, t: usize, j: usize) -> bool {
    let near = op.window.is_none_or(|w| j as i64 > t as i64 - i64::from(w));
    let together = op.chunk.is_none_or(|c| j / c as usize == t / c as usize);
    together && (!op.causal || (j <= t && near))
}

/// The formula with an explicit mask over all keys.
fn naive(op: &Attention, case: &Case) -> Vec<f64> {
    let (heads, kv_heads) = (op.heads as usize, op.kv_heads as usize);
    let (d, e) = (op.head_dim as usize, op.value_size() as usize);
    let mut y = Vec::new();
    for i in 0..case.q.len() / (heads * d) {
        for h in 0..heads {
            let (g, t) = (h / (heads / kv_heads), case.first + i);
            let mut weights = vec![0.0; case.keys];
            for (j, weight) in weights.iter_mut().enumerate().filter(|(j, _)| sees(op, t, *j)) {
                let product = |c| case.q[(i * heads + h) * d + c] * case.k[(j * kv_heads + g) * d + c];
                let mut s = f64::from(op.scale) * (0..d).map(product).sum::<f64>();
                if let Some(cap) = op.softcap {
                    s = f64::from(cap) * (s / f64::from(cap)).tanh();
                }
                if let Some(slopes) = &op.alibi {
                    s += f64::from(slopes[h]) * (j as f64 - t as f64);
                }
                *weight = s.exp();
            }
            let sum = weights.iter().sum::<f64>() + case.sinks.map_or(0.0, |s| s[h].exp());
            for c in 0..e {
                let weighted = |(j, w): (usize, &f64)| w * case.v[(j * kv_heads + g) * e + c];
                y.push(weights.iter().enumerate().map(weighted).sum::<f64>() / sum);
            }
        }
    }
    y
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equals_the_masked_formula(
        (n, p) in (1usize..12, 0usize..40), (kv_heads, group) in (1u32..4, 1u32..4), head_dim in 1u32..35,
        value_dim in proptest::option::of(1u32..20), window in proptest::option::of(1u32..20),
        chunk in proptest::option::of(1u32..15), softcap in proptest::option::of(0.5f32..4.0),
        (causal, alibi, with_sinks) in any::<(bool, bool, bool)>(), seed: u8,
    ) {
        let heads = kv_heads * group;
        let slopes = || (0..heads).map(|h| (-1.5 * h as f32).exp2()).collect();
        let op = Attention {
            value_dim,
            causal,
            window: window.filter(|_| causal),
            chunk,
            softcap,
            alibi: (alibi && causal).then(slopes),
            ..Attention::causal(heads, kv_heads, head_dim, 0.4)
        };
        let keys = match (causal, chunk) {
            (true, _) => n + p,
            (false, Some(_)) => n,
            (false, None) => p.max(1),
        };
        let columns = [heads * head_dim, kv_heads * head_dim, kv_heads * op.value_size()].map(|c| c as usize);
        let q = random(seed, n * columns[0]);
        let (k, v) = (random(seed ^ 1, keys * columns[1]), random(seed ^ 2, keys * columns[2]));
        let sinks: Vec<f64> = random(seed ^ 3, heads as usize).iter().map(|s| 4.0 * s).collect();
        let case = Case { q: &q, k: &k, v: &v, sinks: with_sinks.then_some(&sinks), keys, first: if causal { p } else { 0 } };
        let expected = naive(&op, &case);
        let symbols = Symbols::np(n as u64, p as u64);
        let mut wide: Vec<Value<f64>> =
            vec![matrix(n, columns[0], &q), matrix(keys, columns[1], &k), matrix(keys, columns[2], &v)];
        wide.extend(with_sinks.then(|| vector(&sinks)));
        assert_close(&numbers(&run(op.clone(), &symbols, &wide)), &expected, 1e-12);
        let narrow: Vec<Value<f32>> = wide.iter().map(|v| v.cast().unwrap()).collect();
        assert_close(&numbers(&run(op, &symbols, &narrow)), &expected, 1e-5);
    }
}

#[test]
fn scores_that_overflow_exp_do_no_harm() {
    let inputs = [matrix::<f32>(1, 1, &[1.0]), matrix(2, 1, &[1000.0, 1001.0]), matrix(2, 1, &[0.0, 1.0])];
    let op = Attention::causal(1, 1, 1, 1.0);
    let expected = 1.0 / (1.0 + (-1f64).exp());
    assert_close(&numbers(&run(op.clone(), &Symbols::np(1, 1), &inputs)), &[expected], 1e-7);
    for (sink, expected) in [(-1000.0, expected), (1e4, 0.0)] {
        let [q, k, v] = inputs.clone();
        let found = run(op.clone(), &Symbols::np(1, 1), &[q, k, v, vector(&[sink])]);
        assert_close(&numbers(&found), &[expected], 1e-7);
    }
}

#[test]
fn no_keys_give_zero() {
    let op = Attention { causal: false, ..Attention::causal(2, 1, 2, 1.0) };
    let inputs = [matrix::<f32>(1, 4, &[1.0; 4]), matrix(0, 2, &[]), matrix(0, 2, &[])];
    assert_eq!(numbers(&run(op, &Symbols::np(1, 0), &inputs)), [0.0; 4]);
}

#[test]
fn types_and_attributes_that_do_not_fit_are_refused() {
    let n = Dim::symbol(Symbol::N);
    let seen = n.checked_add(&Dim::symbol(Symbol::P)).unwrap();
    let ty = |rows: &Dim, columns: u64| TensorType::new(DType::F16, [rows.clone(), Dim::from(columns)]);
    let types = |v: u64| vec![ty(&n, 24), ty(&seen, 12), ty(&seen, v)];
    let base = Attention::causal(4, 2, 6, 1.0);
    let narrow = Attention { value_dim: Some(5), ..base.clone() };
    assert_eq!(Op::from(base.clone()).infer(&types(12)).unwrap(), [ty(&n, 24)]);
    assert_eq!(Op::from(narrow.clone()).infer(&types(10)).unwrap(), [ty(&n, 20)]);
    let mut sinks = types(12);
    sinks.push(TensorType::new(DType::BF16, [4u64]));
    assert_eq!(Op::from(base.clone()).infer(&sinks).unwrap(), [ty(&n, 24)]);
    sinks[3] = TensorType::new(DType::BF16, [3u64]);

    let whole = Attention { causal: false, ..base.clone() };
    let encoder = vec![ty(&n, 24), ty(&Dim::from(7u64), 12), ty(&Dim::from(7u64), 12)];
    assert_eq!(Op::from(whole.clone()).infer(&encoder).unwrap(), [ty(&n, 24)]);

    for (op, types, expected) in [
        (base.clone(), types(10), "`v` must be f16[n+p,12], found f16[n+p,10]"),
        (narrow, types(12), "`v` must be f16[n+p,10]"),
        (base.clone(), sinks, "the length of `sinks` must be 4, found 3"),
        (base.clone(), encoder, "the first size of `k` must be n+p, found 7"),
        (Attention { window: Some(0), ..base.clone() }, types(12), "`window` must be at least 1"),
        (Attention { chunk: Some(0), ..base.clone() }, types(12), "`chunk` must be at least 1"),
        (Attention { value_dim: Some(0), ..base.clone() }, types(0), "sizes above 0"),
        (
            Attention { alibi: Some(vec![1.0; 3]), ..base.clone() },
            types(12),
            "4 finite slopes, one per head, found 3",
        ),
        (Attention { alibi: Some(vec![f32::NAN; 4]), ..base }, types(12), "finite slopes"),
        (
            Attention { chunk: Some(4), ..whole.clone() },
            types(12),
            "the first size of `k` must be n, found n+p",
        ),
        (Attention { window: Some(4), ..whole }, types(12), "need `causal`"),
    ] {
        let error = Op::from(op.clone()).infer(&types).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{op:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
