//! Mixture of experts: routing against the formulas, products of the chosen experts only, and choices that are near.

use crate::common::{assert_close, matrix, numbers, random, run, vector};
use proptest::prelude::*;
use tapml_graph::op::{Combine, ExpertLinear, GroupScore, Groups, Linear, Route, Scores};
use tapml_graph::{ErrorKind, Op, Symbols};
use tapml_reference::{Oracle, Real, Value, eval, oracle};

const AMPLITUDE: f64 = 2.4e-7;

fn plain(k: u32, scores: Scores) -> Route {
    Route { k, scores, normalize: false, scale: 1.0, groups: None }
}

/// Experts and weights of rows of logits.
fn route<T: Real>(op: &Route, inputs: &[Value<T>]) -> (Vec<u32>, Vec<f64>) {
    let outputs = eval(&op.clone().into(), &Symbols::np(1, 0), inputs).unwrap();
    (outputs[0].as_ids().unwrap().to_vec(), numbers(&outputs[1]))
}

fn softmax(values: &[f64]) -> Vec<f64> {
    let sum: f64 = values.iter().map(|v| v.exp()).sum();
    values.iter().map(|v| v.exp() / sum).collect()
}

/// The routers of published models with masks over all experts, each expert counting those that stand before it.
fn naive_route(op: &Route, logits: &[f64], bias: &[f64]) -> Vec<(u32, f64)> {
    let scores = match op.scores {
        Scores::Softmax => softmax(logits),
        Scores::Sigmoid => logits.iter().map(|l| 1.0 / (1.0 + (-l).exp())).collect(),
        Scores::SoftmaxOfTop => logits.to_vec(),
    };
    let mut keys: Vec<f64> = scores.iter().zip(bias).map(|(s, b)| s + b).collect();
    if let Some(Groups { count, selected, by }) = op.groups {
        let size = keys.len() / count as usize;
        let worth = |group: &[f64]| {
            let mut group = group.to_vec();
            group.sort_by(|a, b| b.total_cmp(a));
            if by == GroupScore::Max { group[0] } else { group[0] + group[1] }
        };
        let worth: Vec<f64> = keys.chunks(size).map(worth).collect();
        for (group, keys) in keys.chunks_mut(size).enumerate() {
            if worth.iter().filter(|&&w| w > worth[group]).count() >= selected as usize {
                keys.fill(f64::NEG_INFINITY);
            }
        }
    }
    let rank = |e: usize| keys.iter().filter(|&&key| key > keys[e]).count();
    let chosen: Vec<usize> =
        (0..op.k as usize).map(|place| (0..keys.len()).find(|&e| rank(e) == place).unwrap()).collect();
    let mut weights: Vec<f64> = chosen.iter().map(|&e| scores[e]).collect();
    if op.scores == Scores::SoftmaxOfTop {
        weights = softmax(&weights);
    }
    let sum = if op.normalize { weights.iter().sum() } else { 1.0 };
    let scale = f64::from(op.scale);
    chosen.into_iter().zip(weights).map(|(e, w)| (e as u32, w / sum * scale)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn routing_equals_the_masked_formula(
        rows in 1usize..5, count in 1u32..7, size in 2u32..7, selected in 1u32..7, k in 1u32..9,
        scores in 0usize..3, normalize: bool, grouped: bool, two: bool, biased: bool, seed: u8,
    ) {
        let scores = [Scores::Softmax, Scores::Sigmoid, Scores::SoftmaxOfTop][scores];
        let by = if two { GroupScore::Top2Sum } else { GroupScore::Max };
        let selected = selected.min(count);
        let groups = grouped.then_some(Groups { count, selected, by });
        let open = if grouped { selected * size } else { count * size };
        let normalize = normalize && scores != Scores::SoftmaxOfTop;
        let op = Route { k: k.min(open), scores, normalize, scale: 2.5, groups };
        let experts = (count * size) as usize;
        let logits: Vec<f64> = random(seed, rows * experts).iter().map(|l| 4.0 * l).collect();
        let bias: Vec<f64> = random(seed ^ 1, experts).iter().map(|b| if biased { 0.3 * b } else { 0.0 }).collect();
        let inputs = [matrix::<f64>(rows, experts, &logits), vector(&bias)];
        let (chosen, weights) = route(&op, &inputs[..1 + usize::from(biased)]);
        let expected: Vec<(u32, f64)> =
            logits.chunks(experts).flat_map(|logits| naive_route(&op, logits, &bias)).collect();
        prop_assert_eq!(chosen, expected.iter().map(|e| e.0).collect::<Vec<_>>());
        assert_close(&weights, &expected.iter().map(|e| e.1).collect::<Vec<_>>(), 1e-14);
    }

    #[test]
    fn products_are_those_of_the_chosen_matrices(
        n in 1usize..40, count in 1usize..6, slots in 1usize..4, k in 1usize..40, o in 1usize..40,
        shared: bool, biased: bool, seed: u8,
    ) {
        let blocks = if shared { 1 } else { slots };
        let (x, w) = (random(seed, n * blocks * k), random(seed ^ 1, count * o * k));
        let b = random(seed ^ 2, count * o);
        let experts: Vec<u32> =
            random(seed ^ 3, n * slots).iter().map(|v| ((v + 1.0) / 2.0 * count as f64) as u32).collect();
        let symbols = Symbols::np(n as u64, 0);
        let mut expected = Vec::new();
        for (place, &e) in experts.iter().enumerate() {
            let (row, e) = (if shared { place / slots } else { place }, e as usize);
            let row = matrix::<f64>(1, k, &x[row * k..(row + 1) * k]);
            let own = matrix(o, k, &w[e * o * k..(e + 1) * o * k]);
            let y = if biased { run(Linear::default(), &symbols, &[row, own, vector(&b[e * o..(e + 1) * o])]) } else { run(Linear::default(), &symbols, &[row, own]) };
            expected.extend(numbers(&y));
        }
        let inputs = [
            matrix(n, blocks * k, &x),
            Value::float(vec![count, o, k], w).unwrap(),
            Value::indices(vec![n, slots], experts).unwrap(),
            matrix(count, o, &b),
        ];
        let found = run(ExpertLinear {}, &symbols, &inputs[..3 + usize::from(biased)]);
        assert_close(&numbers(&found), &expected, 1e-13);
        let narrow = inputs.map(|v| v.cast::<f32>().unwrap());
        let found = run(ExpertLinear {}, &symbols, &narrow[..3 + usize::from(biased)]);
        assert_close(&numbers(&found), &expected, 1e-5);
    }
}

#[test]
fn routing_has_its_known_values() {
    let ln = [1.0f64, 4.0, 2.0, 3.0].map(f64::ln);
    let logits = [matrix::<f64>(1, 4, &ln)];
    let (experts, weights) = route(&plain(2, Scores::Softmax), &logits);
    assert_eq!(experts, [1, 3]);
    assert_close(&weights, &[0.4, 0.3], 1e-15);
    let normalized = Route { normalize: true, scale: 7.0, ..plain(2, Scores::Softmax) };
    assert_close(&route(&normalized, &logits).1, &[4.0, 3.0], 1e-14);
    assert_close(&route(&plain(2, Scores::SoftmaxOfTop), &logits).1, &[4.0 / 7.0, 3.0 / 7.0], 1e-15);
    assert_close(&route(&plain(1, Scores::Sigmoid), &logits).1, &[0.8], 1e-15);
}

#[test]
fn a_bias_decides_the_choice_and_leaves_the_weights() {
    let logits = matrix::<f64>(1, 3, &[0.0, 1.0, -1.0]);
    let (experts, weights) = route(&plain(2, Scores::Sigmoid), &[logits, vector(&[0.0, -1.0, 5.0])]);
    let sigmoid = |l: f64| 1.0 / (1.0 + (-l).exp());
    assert_eq!(experts, [2, 0]);
    assert_close(&weights, &[sigmoid(-1.0), 0.5], 1e-15);
}

#[test]
fn equal_experts_come_in_their_order_and_nan_last() {
    let ties = [matrix::<f32>(1, 5, &[1.0, 2.0, 1.0, 2.0, 1.0])];
    assert_eq!(route(&plain(4, Scores::Softmax), &ties).0, [1, 3, 0, 2]);
    let odd = [matrix::<f32>(1, 4, &[f64::NAN, f64::NEG_INFINITY, -7.0, f64::NAN])];
    assert_eq!(route(&plain(4, Scores::SoftmaxOfTop), &odd).0, [2, 0, 1, 3]);
    let groups = Some(Groups { count: 3, selected: 1, by: GroupScore::Top2Sum });
    let tie = [matrix::<f32>(1, 6, &[0.0, 0.0, 3.0, 1.0, 1.0, 3.0])];
    assert_eq!(route(&Route { groups, ..plain(2, Scores::SoftmaxOfTop) }, &tie).0, [2, 3]);
}

#[test]
fn experts_that_nobody_chose_have_no_influence() {
    let (n, count, o, k) = (3, 4, 5, 7);
    let mut w = random(1, count * o * k);
    w[..o * k].fill(f64::NAN);
    w[3 * o * k..].fill(f64::INFINITY);
    let inputs = [
        matrix::<f32>(n, k, &random(2, n * k)),
        Value::float(vec![count, o, k], w.iter().map(|&v| v as f32).collect()).unwrap(),
        Value::indices(vec![n, 2], vec![1, 2, 2, 1, 1, 1]).unwrap(),
    ];
    let found = numbers(&run(ExpertLinear {}, &Symbols::np(3, 0), &inputs));
    assert!(found.iter().all(|v| v.is_finite()));
}

#[test]
fn an_expert_that_does_not_exist_is_refused_by_its_place() {
    let inputs = [
        matrix::<f32>(2, 1, &[1.0, 2.0]),
        Value::float(vec![3, 1, 1], vec![1.0; 3]).unwrap(),
        Value::indices(vec![2, 2], vec![0, 1, 2, 3]).unwrap(),
    ];
    let error = eval(&Op::from(ExpertLinear {}), &Symbols::np(2, 0), &inputs).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), "expert_linear: expert 3 in slot 1 of row 1 is none of the 3 experts");
}

#[test]
fn combining_is_the_weighted_sum_of_blocks() {
    let y = matrix::<f64>(2, 4, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let weights = matrix(2, 2, &[0.5, 2.0, -1.0, 0.0]);
    let combine = |inputs: &[Value<f64>]| numbers(&run(Combine { k: 2 }, &Symbols::np(2, 0), inputs));
    assert_eq!(combine(&[y.clone(), weights]), [6.5, 9.0, -5.0, -6.0]);
    assert_eq!(combine(&[y]), [4.0, 6.0, 12.0, 14.0]);
}

fn judge(op: &Route, inputs: &[Value<f64>]) -> Oracle {
    let weights: Vec<bool> = (0..inputs.len()).map(|i| i > 0).collect();
    oracle(&op.clone().into(), &Symbols::np(1, 0), inputs, &weights, AMPLITUDE, 8, 1).unwrap()
}

#[test]
fn near_choices_deviate_by_the_disturbance_that_reaches_them() {
    // For the last place 2 and its next f32 nearly tie; 1 and 4 are far from everything.
    let next = f64::from(2f32.next_up());
    let found = judge(&plain(2, Scores::Softmax), &[matrix(1, 4, &[1.0, next, 4.0, 2.0])]);
    assert_eq!((found.exact[0].values(), found.deviation[0].values()), (&[2.0, 1.0][..], &[0.0, 1.0][..]));
    // The weight hardly depends on which of the two is chosen.
    assert!(found.deviation[1].values().iter().all(|&d| d < 1e-6));

    let r = 5e-6;
    let found = judge(&plain(2, Scores::Softmax), &[matrix(1, 4, &[1.0, 1.0 + 2.0 * r, 4.0, 0.5])]);
    let deviation = found.deviation[0].values()[1];
    assert!((deviation / (AMPLITUDE / r) - 1.0).abs() < 1e-4, "{deviation}");

    let far = judge(&plain(2, Scores::Softmax), &[matrix(1, 4, &[1.0, 3.0, 4.0, 2.0])]);
    assert_eq!(far.deviation[0].values(), [0.0, 0.0]);
}

#[test]
fn equal_logits_are_decided_by_their_order() {
    let found = judge(&plain(1, Scores::Softmax), &[matrix(1, 3, &[2.0, 2.0, 1.0])]);
    assert_eq!((found.exact[0].values(), found.deviation[0].values()), (&[0.0][..], &[0.0][..]));
    // With unequal biases the sums are equal by chance only.
    let (logits, bias) = ([0.0, 0.0, -9.0], [0.25, 0.25 + 1e-9, 0.0]);
    let found = judge(&plain(1, Scores::Sigmoid), &[matrix(1, 3, &logits), vector(&bias)]);
    assert_eq!(found.exact[0].values(), [1.0]);
    assert_eq!(found.deviation[0].values(), [1.0]);
}

#[test]
fn weights_deviate_by_their_jump_where_a_bias_lets_unlike_experts_tie() {
    let sigmoid = |l: f64| 1.0 / (1.0 + (-l).exp());
    let logits = [3.0, -1.0];
    let bias = [0.0, sigmoid(3.0) - sigmoid(-1.0) - 1e-9];
    let found = judge(&plain(1, Scores::Sigmoid), &[matrix(1, 2, &logits), vector(&bias)]);
    assert_eq!(found.exact[0].values(), [0.0]);
    let jump = sigmoid(3.0) - sigmoid(-1.0);
    assert_close(found.deviation[1].values(), &[jump], 1e-12);
}

#[test]
fn groups_that_nearly_tie_leave_all_their_experts_undecided() {
    let groups = Some(Groups { count: 2, selected: 1, by: GroupScore::Top2Sum });
    let op = Route { groups, ..plain(2, Scores::SoftmaxOfTop) };
    let found = judge(&op, &[matrix(1, 4, &[3.0, 1.0, 2.0, 2.0 - 1e-9])]);
    assert_eq!(found.exact[0].values(), [0.0, 1.0]);
    assert_eq!(found.deviation[0].values(), [1.0, 1.0]);
    assert!(found.deviation[1].values().iter().all(|&d| d > 0.3));
}
