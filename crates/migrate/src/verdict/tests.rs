//! Verdicts on small made-up outputs; the study on real operators is `tests/verdicts.rs`.

use super::*;

const F32: Precision = Precision { accumulate: DType::F32, terms: 0 };

fn exact(values: Vec<f64>, row_len: usize) -> Exact {
    let deviation = values.iter().map(|v| v.abs() * AMPLITUDE * 0.8).collect();
    Exact { values, deviation, row_len }
}

fn wave(count: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7919) as f64 * 0.37).sin() * 2.0 + 0.01).collect()
}

fn verdict(exact: &Exact, dtype: DType, observed: &[f64]) -> Judgement {
    let tensor = Tensor::from_f64(dtype, vec![observed.len()], observed).unwrap();
    judge(std::slice::from_ref(exact), &[tensor], F32, None).unwrap()
}

#[test]
fn correct_rounding_passes_in_every_dtype_and_tiny_values_too() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for scale in [1.0, 1e-7, 3e-39] {
            let e = exact(wave(640).iter().map(|v| v * scale).collect(), 64);
            let v = verdict(&e, dtype, &e.values);
            assert!(v.passed(), "{dtype} {scale}: {v:?}");
        }
    }
}

#[test]
fn one_wrong_element_is_found_and_named() {
    let e = exact(wave(640), 64);
    let mut values = e.values.clone();
    values[130] *= 1.0 + 1e-4;
    let v = verdict(&e, DType::F32, &values);
    assert!(!v.passed());
    assert_eq!((v.criterion, v.worst.index), (Criterion::Element, 130));
    let pattern = v.pattern.unwrap();
    assert_eq!(
        (pattern.failed, pattern.columns.as_slice(), pattern.few_rows.as_slice()),
        (1, &[2][..], &[2][..])
    );
}

#[test]
fn a_small_scale_error_hidden_by_bf16_is_found_in_the_distribution() {
    let e = exact(wave(29 * 320), 320);
    let values: Vec<f64> = e.values.iter().map(|v| v * 1.0005).collect();
    let v = verdict(&e, DType::BF16, &values);
    assert!(v.element_ratio < 1.2 && v.ratio > 3.0, "{v:?}");
    assert!((v.slope - 5e-4).abs() < 2e-4, "{}", v.slope);
}

#[test]
fn nan_and_infinity_must_be_where_the_oracle_has_them() {
    let mut e = exact(wave(64), 64);
    let mut values = e.values.clone();
    values[3] = f64::NAN;
    let v = verdict(&e, DType::F32, &values);
    assert_eq!((v.ratio, v.criterion), (f64::INFINITY, Criterion::NonFinite));
    e.values[3] = f64::NAN;
    assert!(verdict(&e, DType::F32, &values).passed());
    values[3] = 0.0;
    assert!(!verdict(&e, DType::F32, &values).passed());
    // 70000 overflows f16: infinity is right there and wrong in f32.
    let mut e = exact(wave(64), 64);
    e.values[5] = 70_000.0;
    let values = e.values.clone();
    assert!(verdict(&e, DType::F16, &values).passed());
    let mut values = values;
    values[5] = f64::INFINITY;
    assert!(!verdict(&e, DType::F32, &values).passed());
    values[5] = f64::NEG_INFINITY;
    assert!(!verdict(&e, DType::F16, &values).passed());
}

#[test]
fn what_only_moves_data_gets_no_room() {
    let values: Vec<f64> = wave(64).iter().map(|&v| f64::from(v as f32)).collect();
    let e = Exact { deviation: vec![0.0; 64], values, row_len: 64 };
    assert!(verdict(&e, DType::F32, &e.values).passed());
    let mut moved = e.values.clone();
    moved[7] = f64::from((moved[7] as f32).next_up().next_up());
    assert!(!verdict(&e, DType::F32, &moved).passed());
}

#[test]
fn a_faulty_source_is_reported_and_excuses_nothing() {
    let e = exact(wave(640), 64);
    let wrong: Vec<f64> = e.values.iter().map(|v| v * 1.01).collect();
    let tensor = Tensor::from_f64(DType::F32, vec![640], &wrong).unwrap();
    let tensors = [tensor];
    let v = judge(std::slice::from_ref(&e), &tensors, F32, Some((&tensors, F32))).unwrap();
    assert!(!v.passed());
    assert!(v.source_ratio.unwrap() > 100.0);
}
