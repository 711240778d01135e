//! Tests of finding axes and cutting along them.

use super::*;
use tapml_exec::Call;
use tapml_graph::op::{OPS, Sample};

fn specimen(sample: &Sample) -> Specimen {
    let types = sample.types();
    Specimen::new(Call {
        node: sample.name.clone(),
        op: sample.op.clone(),
        symbols: sample.symbols.clone(),
        inputs: sample.tensors(1).unwrap(),
        weights: types.iter().map(|t| t.shape[0].as_const().map(|_| "w".to_string())).collect(),
        output_types: sample.op.infer(&types).unwrap(),
        input_types: types,
    })
}

fn first(op: &str) -> Specimen {
    let info = OPS.iter().find(|i| i.name == op).unwrap();
    specimen(&(info.samples)()[0])
}

fn names(specimen: &Specimen) -> Vec<String> {
    axes(specimen, &Oracles::new(0)).unwrap().into_iter().map(|a| format!("{}: {}", a.name, a.len)).collect()
}

#[test]
fn a_product_has_rows_a_sum_and_columns() {
    let call = first("linear");
    let found = names(&call);
    let has = |name: &str| assert!(found.iter().any(|f| f.starts_with(name)), "{name} of {found:?}");
    ["n:", "input 0 size 1, input 1 size 1:", "input 1 size 0"].into_iter().for_each(has);
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn heads_take_their_columns_and_attributes_along() {
    let call = first("attention");
    let axes = axes(&call, &Oracles::new(0)).unwrap();
    let heads = axes.iter().find(|a| a.attributes.iter().any(|x| x.pointer == "/kv_heads")).unwrap();
    let pointers: Vec<&str> = heads.attributes.iter().map(|a| a.pointer.as_str()).collect();
    assert_eq!(pointers, ["/heads", "/kv_heads"]);
    let inputs: Vec<(usize, usize)> = heads.inputs.iter().map(|p| (p.tensor, p.dim)).collect();
    assert_eq!(inputs, [(0, 1), (1, 1), (2, 1)]);
    let cut = call.cut(heads, &[heads.len - 1], &Oracles::new(0)).unwrap();
    assert_eq!(cut.call.op.attributes()["kv_heads"], 1);
    assert_eq!(cut.elements() * heads.len, call.elements());
    // The last head's columns are the last ones of each row.
    let width = call.call.inputs[1].row_len();
    let kept = cut.call.inputs[1].row_len();
    assert_eq!(cut.call.inputs[1].to_f32()[..kept], call.call.inputs[1].to_f32()[width - kept..width]);
}

/// Every axis of every sample of every operator can be cut to its least, and what results is a valid call.
#[test]
fn every_operator_can_be_cut_along_every_axis() {
    for info in OPS {
        for sample in (info.samples)() {
            let call = specimen(&sample);
            for axis in axes(&call, &Oracles::new(0)).unwrap() {
                let kept: Vec<usize> = (0..axis.len - 1).collect();
                let cut = call.cut(&axis, &kept, &Oracles::new(0));
                let cut = cut
                    .unwrap_or_else(|e| panic!("{} `{}` along {}: {e}", info.name, sample.name, axis.name));
                cut.call.check().unwrap();
                assert!(cut.elements() <= call.elements(), "{}", info.name);
            }
        }
    }
}

#[test]
fn a_place_maps_positions_both_ways() {
    let place = AxisPlace { tensor: 0, dim: 0, start: 2, outer: 2, inner: 3 };
    assert_eq!(place.index(4, 1), None);
    assert_eq!(place.index(4, 2 + 3 * 5 + 1), Some(1));
    assert_eq!(place.index(4, 2 + 24), None);
    assert_eq!(place.moved_position(4, &[1, 3], 2 + 3 * 5 + 1), Some(2 + 3 * 2 + 1));
    assert_eq!(place.moved_position(4, &[0], 2 + 3 * 5 + 1), None);
    assert_eq!(place.moved_position(4, &[0], 1), Some(1));
    assert_eq!(place.moved_position(4, &[0], 26), Some(26 - 18));
}
