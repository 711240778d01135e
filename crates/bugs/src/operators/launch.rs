//! Faults of a launch: bindings, workgroups, tables.
//!
//! These change what a kernel is given, not its text.

use super::kernel::{FoundEdit, MutatedKernel};
use crate::mutant::Edit;
use tapml_device::BindingKind;
use tapml_kernels::Arg;

/// Two inputs exchanged.
pub fn swapped_inputs(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let inputs: Vec<(usize, &Arg)> = kernel.args.iter().enumerate().collect();
    let read = |at: usize| kernel.desc.bindings.get(at) == Some(&BindingKind::Read);
    let inputs: Vec<usize> = inputs
        .into_iter()
        .filter(|(at, arg)| read(*at) && matches!(arg, Arg::Input { .. }))
        .map(|(at, _)| at)
        .collect();
    // Neighbours only: other pairs would be more of the same.
    let pairs = inputs.windows(2).map(|pair| (pair[0], pair[1]));
    pairs
        .map(|(a, b)| {
            let diff = format!("{}, bindings\n- {a}, {b}\n+ {b}, {a}", kernel.desc.name);
            FoundEdit { edit: Edit::Bindings { a, b }, diff }
        })
        .collect()
}

/// The last workgroup is not launched.
pub fn last_workgroup(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    // A kernel that never asks for y has a grid of one axis.
    let axes = if kernel.source.find(kernel.axes()[1]).next().is_some() { 0..2 } else { 0..1 };
    axes.map(|axis| {
        let name = ["x", "y", "z"][axis];
        let diff = format!("{}, workgroups\n- {name}\n+ {name} - 1", kernel.desc.name);
        FoundEdit { edit: Edit::Grid { axis }, diff }
    })
    .collect()
}

/// Frequencies of another base.
pub fn wrong_base(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let table = kernel.desc.name.starts_with("rope_angles/");
    let ratios = [0.5, 0.9, 10.0].into_iter().filter(|_| table);
    ratios
        .map(|ratio| {
            let diff = format!("{}, frequency j of d\n- f\n+ f * {ratio}^(j / d)", kernel.desc.name);
            FoundEdit { edit: Edit::Frequencies { ratio }, diff }
        })
        .collect()
}
