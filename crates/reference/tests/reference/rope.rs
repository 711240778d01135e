//! `rope` and `rope_angles` against their formulas, and what they refuse.

use crate::common::{assert_close, matrix, numbers, run};
use tapml_graph::op::{DynamicNtk, LongRope, Rope, RopeAngles};
use tapml_graph::{DType, ErrorKind, Op, Symbols, TensorType};
use tapml_reference::Value;

/// The angles of these positions and frequencies: for each position cosines, then sines.
fn angles(positions: &[f64], frequencies: &[f64], scale: f64) -> Vec<f64> {
    let row = |&t: &f64| {
        let angles: Vec<f64> = frequencies.iter().map(|f| t * f).collect();
        let (cosines, sines) = (angles.iter().map(|a| a.cos()), angles.iter().map(|a| a.sin()));
        cosines.chain(sines).map(|v| scale * v).collect::<Vec<f64>>()
    };
    positions.iter().flat_map(row).collect()
}

#[test]
fn angles_are_of_the_absolute_position_and_rotation_is_by_them() {
    let found = run::<f64>(RopeAngles::new(vec![1.0, 0.5], 2.0), &Symbols::np(2, 3), &[]);
    assert_close(&numbers(&found), &angles(&[3.0, 4.0], &[1.0, 0.5], 2.0), 1e-15);

    let quarter = matrix::<f64>(1, 4, &[0.0, 1.0, 1.0, 0.0]);
    let x = matrix::<f64>(1, 5, &[1.0, 2.0, 3.0, 4.0, 9.0]);
    let halves = Rope { head_dim: 5, rotary_dim: 4, interleaved: false };
    let found = run(halves.clone(), &Symbols::np(1, 0), &[x.clone(), quarter.clone()]);
    assert_eq!(numbers(&found), [-3.0, 2.0, 1.0, 4.0, 9.0]);
    let pairs = run(Rope { interleaved: true, ..halves }, &Symbols::np(1, 0), &[x, quarter]);
    assert_eq!(numbers(&pairs), [-2.0, 1.0, 3.0, 4.0, 9.0]);
}

#[test]
fn long_texts_take_their_own_frequencies_and_factor() {
    let long = LongRope { after: 5, inv_freq: vec![0.25, 0.125], scale: 3.0 };
    let op = RopeAngles { long: Some(long), ..RopeAngles::new(vec![1.0, 0.5], 2.0) };
    let found = run::<f64>(op.clone(), &Symbols::np(2, 3), &[]);
    assert_close(&numbers(&found), &angles(&[3.0, 4.0], &[1.0, 0.5], 2.0), 1e-15);
    let found = run::<f64>(op, &Symbols::np(2, 4), &[]);
    assert_close(&numbers(&found), &angles(&[4.0, 5.0], &[0.25, 0.125], 3.0), 1e-15);
}

#[test]
fn dynamic_scaling_raises_the_base_with_the_length() {
    let (theta, pairs, factor, original) = (10_000f64, 4, 3.0f64, 8);
    let plain: Vec<f64> = (0..pairs).map(|j| theta.powf(-j as f64 / f64::from(pairs))).collect();
    let inv_freq: Vec<f32> = plain.iter().map(|&f| f as f32).collect();
    let dynamic = Some(DynamicNtk { factor: factor as f32, original });
    let op = RopeAngles { dynamic, ..RopeAngles::new(inv_freq, 1.0) };
    let found = run::<f64>(op.clone(), &Symbols::np(3, 5), &[]);
    assert_close(&numbers(&found), &angles(&[5.0, 6.0, 7.0], &plain, 1.0), 1e-6);
    // The base of a text of 20 tokens, as its definition has it, with 2d elements of a head rotated.
    let d = f64::from(pairs);
    let base = theta * (factor * 20.0 / f64::from(original) - (factor - 1.0)).powf(2.0 * d / (2.0 * d - 2.0));
    let slower: Vec<f64> = (0..pairs).map(|j| base.powf(-f64::from(j) / d)).collect();
    let found = run::<f64>(op, &Symbols::np(2, 18), &[]);
    assert_close(&numbers(&found), &angles(&[18.0, 19.0], &slower, 1.0), 1e-6);
}

#[test]
fn positions_may_be_given_and_differ_by_section() {
    let ids = |shape: Vec<usize>, ids: &[u32]| {
        Value::<f64>::from_tensor(&tapml_graph::Tensor::from_u32(shape, ids.to_vec()).unwrap()).unwrap()
    };
    let op = RopeAngles::new(vec![1.0, 0.5, 0.25], 1.0);
    let found = run(op.clone(), &Symbols::np(7, 90), &[ids(vec![2], &[40, 3])]);
    assert_close(&numbers(&found), &angles(&[40.0, 3.0], &[1.0, 0.5, 0.25], 1.0), 1e-15);

    let op = RopeAngles { sections: Some(vec![2, 0, 1]), ..op };
    let positions = ids(vec![3, 2], &[4, 5, 70, 80, 9, 10]);
    let found = numbers(&run(op, &Symbols::np(7, 90), &[positions]));
    let expected = [[4.0, 2.0, 9.0 * 0.25], [5.0, 2.5, 10.0 * 0.25f64]];
    for (row, angles) in found.chunks(6).zip(expected) {
        assert_close(&row[..3], &angles.map(f64::cos), 1e-15);
        assert_close(&row[3..], &angles.map(f64::sin), 1e-15);
    }
}

#[test]
fn attributes_and_positions_that_do_not_fit_are_refused() {
    let base = RopeAngles::new(vec![1.0, 0.5], 1.0);
    let long = |inv_freq| Some(LongRope { after: 5, inv_freq, scale: 1.0 });
    let dynamic = |factor, original| Some(DynamicNtk { factor, original });
    let ids = |shape: &[u64]| vec![TensorType::new(DType::U32, shape.iter().copied())];
    let floats = vec![TensorType::new(DType::F32, [4u64])];
    for (op, types, expected) in [
        (RopeAngles::new(Vec::new(), 1.0), vec![], "found 0 and 0"),
        (RopeAngles::new(vec![1.0, f32::NAN], 1.0), vec![], "finite"),
        (RopeAngles::new(vec![1.0, -std::f32::consts::PI], 1.0), vec![], "half a turn"),
        (RopeAngles { long: long(vec![1.0]), ..base.clone() }, vec![], "found 2 and 1"),
        (RopeAngles { long: long(vec![1.0, 4.0]), ..base.clone() }, vec![], "of `long` likewise"),
        (
            RopeAngles { long: long(vec![1.0; 2]), dynamic: dynamic(2.0, 8), ..base.clone() },
            vec![],
            "exclude",
        ),
        (RopeAngles { dynamic: dynamic(0.5, 8), ..base.clone() }, vec![], "found 0.5"),
        (RopeAngles { dynamic: dynamic(2.0, 0), ..base.clone() }, vec![], "above 0"),
        (
            RopeAngles { dynamic: dynamic(2.0, 8), ..RopeAngles::new(vec![1.0], 1.0) },
            vec![],
            "at least 2 pairs",
        ),
        (
            RopeAngles { sections: Some(vec![1, 2]), ..base.clone() },
            ids(&[2, 4]),
            "add up to 2 pairs, found 3",
        ),
        (
            RopeAngles { sections: Some(vec![1, 1]), ..base.clone() },
            vec![],
            "expected 1 or 2 inputs, found 0",
        ),
        (RopeAngles { sections: Some(vec![1, 1]), ..base.clone() }, ids(&[3, 4]), "must be u32[2,n]"),
        (base.clone(), ids(&[3, 4]), "must be u32[n], found u32[3,4]"),
        (base, floats, "must be u32[n], found f32[4]"),
    ] {
        let error = Op::from(op.clone()).infer(&types).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{op:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
