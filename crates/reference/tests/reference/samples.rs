//! Every operator's sample cases: they run in `f32` and `f64`, agree within `f32` rounding, and have the inferred types.

use tapml_graph::op::{OPS, Sample};
use tapml_graph::{DType, Op, Symbols, Tensor, TensorType};
use tapml_reference::{Array, Value, eval, oracle, run_node};

const U: f64 = 5.960_464_477_539_063e-8;
/// Disturbed evaluations. All of eight changes are below a third of their deviation at one element in 46,000, and the largest
/// samples have 54,000.
const COPIES: usize = 16;

fn samples() -> impl Iterator<Item = (String, Sample)> {
    OPS.iter().flat_map(|info| {
        (info.samples)().into_iter().map(|sample| (format!("{} / {}", info.name, sample.name), sample))
    })
}

/// The relative noise of inputs that moves a sum as rounding does: 4 units, or for sums that are longer than a hundred terms
/// what a serial one loses. Partial sums of K terms of random sign grow as the root of their number, and each is rounded by
/// U/√3 of itself in the mean: U/√3 · √(K²/2) terms in all, which is 0.41 U √K on each of K terms.
fn noise(tensors: &[Tensor]) -> f64 {
    let longest = tensors.iter().flat_map(|t| t.shape()).max().copied().unwrap_or(0);
    U * (0.41 * (longest as f64).sqrt()).max(4.0)
}

/// Root mean square of each element's row.
fn row_rms(array: &Array<f64>) -> Vec<f64> {
    let rms = |row: &[f64]| (row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64).sqrt();
    array.values().chunks(array.row_len()).flat_map(|row| vec![rms(row); row.len()]).collect()
}

#[test]
fn f32_agrees_with_f64_within_the_sensitivity_of_the_exact_result() {
    let mut cases = 0;
    for (name, sample) in samples() {
        let tensors = sample.tensors(7).unwrap();
        let narrow: Vec<Value<f32>> = tensors.iter().map(|t| Value::from_tensor(t).unwrap()).collect();
        let wide: Vec<Value<f64>> = tensors.iter().map(|t| Value::from_tensor(t).unwrap()).collect();
        let found = eval(&sample.op, &sample.symbols, &narrow).unwrap();
        let weights = vec![false; wide.len()];
        let judge = oracle(&sample.op, &sample.symbols, &wide, &weights, noise(&tensors), COPIES, 1).unwrap();
        assert_eq!(found.len(), judge.exact.len(), "{name}");
        for (k, found) in found.iter().enumerate() {
            let (exact, deviation) = (&judge.exact[k], &judge.deviation[k]);
            let typical = row_rms(deviation);
            if let Value::Uint(found) = found {
                let found: Vec<f64> = found.values().iter().map(|&id| f64::from(id)).collect();
                assert_eq!(found, exact.values(), "{name}, output {k}");
                continue;
            }
            for (i, &y) in found.as_float().unwrap().values().iter().enumerate() {
                let exact = exact.values()[i];
                let allowed = 4.0 * deviation.values()[i].max(typical[i]) + 2.02 * U * exact.abs();
                let error = (f64::from(y) - exact).abs();
                assert!(
                    error <= allowed,
                    "{name}, output {k}[{i}]: {y}, exact {exact}: {error:e} > {allowed:e}"
                );
            }
        }
        cases += 1;
    }
    assert!(cases >= OPS.len());
}

#[test]
fn outputs_have_the_inferred_shapes_and_round_to_the_inferred_dtypes() {
    for (name, sample) in samples() {
        let types = sample.op.infer(&sample.types()).unwrap();
        let dtypes: Vec<DType> = types.iter().map(|t| t.dtype).collect();
        let outputs = run_node(&sample.op, &sample.symbols, &sample.tensors(3).unwrap(), &dtypes).unwrap();
        assert_eq!(outputs.len(), types.len(), "{name}");
        for (output, ty) in outputs.iter().zip(&types) {
            assert_eq!(output.dtype(), ty.dtype, "{name}");
            assert_eq!(output.shape(), ty.sizes(&sample.symbols).unwrap(), "{name}");
            assert!(output.to_f64().iter().all(|v| v.is_finite()), "{name}");
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let (one, three) = (pool(1), pool(3));
    for (name, sample) in samples() {
        let inputs: Vec<Value<f32>> =
            sample.tensors(5).unwrap().iter().map(|t| Value::from_tensor(t).unwrap()).collect();
        let run = || eval(&sample.op, &sample.symbols, &inputs).unwrap();
        for (a, b) in one.install(run).iter().zip(&three.install(run)) {
            let bits = |v: &Value<f32>| match v {
                Value::Float(v) => v.values().iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
                Value::Uint(v) => v.values().to_vec(),
            };
            assert_eq!(bits(a), bits(b), "{name}");
        }
    }
}

#[test]
fn wrong_inputs_are_errors_for_every_operator() {
    for (name, sample) in samples() {
        let inputs: Vec<Value<f32>> =
            sample.tensors(5).unwrap().iter().map(|t| Value::from_tensor(t).unwrap()).collect();
        for i in 0..inputs.len() {
            let mut missing = inputs.clone();
            missing.remove(i);
            let mut types = sample.types();
            types.remove(i);
            // The bias of a linear may be absent.
            if sample.op.infer(&types).is_err() {
                assert!(eval(&sample.op, &sample.symbols, &missing).is_err(), "{name} without input {i}");
            }
            let mut odd = inputs.clone();
            odd[i] = Value::float(vec![2, 1, 3, 1], vec![0.0; 6]).unwrap();
            assert!(eval(&sample.op, &sample.symbols, &odd).is_err(), "{name} with a strange input {i}");
            let mut ids = inputs.clone();
            ids[i] = match &inputs[i] {
                Value::Float(_) => Value::ids(vec![0; inputs[i].shape()[0]]),
                Value::Uint(_) => {
                    let shape = inputs[i].shape().to_vec();
                    Value::float(shape.clone(), vec![0.0; shape.iter().product()]).unwrap()
                }
            };
            assert!(
                eval(&sample.op, &sample.symbols, &ids).is_err(),
                "{name} with the wrong sort of input {i}"
            );
        }
    }
    let needs_symbols = |sample: &Sample| match &sample.op {
        Op::Attention(op) => op.causal,
        // Lengths of the rows' texts, input 1, take the place of the length that the symbols give.
        Op::RopeAngles(op) => {
            sample.inputs.is_empty() || sample.inputs.len() < 2 && (op.long.is_some() || op.dynamic.is_some())
        }
        _ => false,
    };
    for (name, sample) in samples().filter(|(_, s)| needs_symbols(s)) {
        let inputs: Vec<Value<f32>> =
            sample.tensors(5).unwrap().iter().map(|t| Value::from_tensor(t).unwrap()).collect();
        assert!(eval(&sample.op, &Symbols::new(), &inputs).is_err(), "{name} without symbols");
    }
}

#[test]
fn a_call_on_the_parts_that_it_names_gives_what_one_on_whole_pools_gives() {
    let mut ops = std::collections::BTreeSet::new();
    let fused = tapml_graph::fusion::FUSIONS.iter().flat_map(|fusion| {
        (fusion.samples)().into_iter().map(|sample| (format!("{} / {}", fusion.name, sample.name), sample))
    });
    for (name, sample) in samples().chain(fused) {
        let mut tensors = sample.tensors(3).unwrap();
        let mut types: Vec<TensorType> = sample.inputs.iter().map(|input| input.ty.clone()).collect();
        let Some(pools) = sample.op.pools(&types) else { continue };
        // Pools of twice as many parts, of which none of the first half is named.
        let count = tensors[pools.inputs[0]].shape()[0] / pools.part;
        let table = &tensors[pools.table];
        let later = |entry: u32| if (entry as usize) < count { entry + count as u32 } else { u32::MAX };
        let entries = table.to_u32().unwrap().into_iter().map(later).collect();
        tensors[pools.table] = Tensor::from_u32(table.shape().to_vec(), entries).unwrap();
        for &pool in &pools.inputs {
            tensors[pool] = Tensor::concat_rows(&[tensors[pool].clone(), tensors[pool].clone()]).unwrap();
        }
        pools.narrow_types(&mut types, 2 * count);
        let doubled = sample.op.with_parts(2 * count as u32);
        let run = |op: &Op, tensors: &[Tensor]| {
            let inputs: Vec<Value<f32>> = tensors.iter().map(|t| Value::from_tensor(t).unwrap()).collect();
            let outputs = eval(op, &sample.symbols, &inputs).unwrap();
            outputs.iter().map(|output| output.to_tensor(DType::F32).unwrap()).collect::<Vec<_>>()
        };
        let whole = run(&doubled, &tensors);
        let rows = tensors[pools.inputs[0]].shape()[0];
        let parts = pools.find_parts(&tensors[pools.table], rows).unwrap();
        for &pool in &pools.inputs {
            tensors[pool] = parts.take_from(&tensors[pool]).unwrap();
        }
        tensors[pools.table] = parts.table().clone();
        let mut narrow = types.clone();
        pools.narrow_types(&mut narrow, parts.count());
        let op = sample.op.with_parts(parts.count() as u32);
        let inferred = op.infer(&narrow).unwrap();
        for (k, (found, whole)) in run(&op, &tensors).iter().zip(&whole).enumerate() {
            let is_pool = pools.outputs.contains(&k);
            let whole = if is_pool { parts.take_from(whole).unwrap() } else { whole.clone() };
            assert_eq!(found.bytes()[..], whole.bytes()[..], "{name}, output {k}");
            assert_eq!(inferred[k].sizes(&sample.symbols).unwrap(), found.shape(), "{name}, output {k}");
        }
        assert!(parts.count() <= count, "{name}");
        ops.insert(sample.op.name());
    }
    assert_eq!(
        ops.into_iter().collect::<Vec<_>>(),
        ["paged_append", "paged_attention", "paged_recurrence", "rope_paged_append"]
    );
}
