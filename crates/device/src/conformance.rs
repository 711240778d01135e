//! The device conformance suite: what every [`Device`] must do, as small cases with WGSL kernels. A new backend, a remote
//! device and the emulator run the same list. Cases leave the device as they found it.

mod bench;
mod buffers;
mod kernels;
mod language;
mod lists;
mod steps;

use crate::Device;
use bench::{Bench, Check, Problem};
use std::fmt;
use tapml_graph::{ErrorKind, Result};

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The device does what the case asks for.
    Passed,
    /// It does not; the text says what was expected and found.
    Failed(String),
    /// The device does not offer what the case needs; the text names it.
    Skipped(String),
}

/// One requirement.
#[derive(Clone, Copy)]
pub struct Case {
    /// Name in lower case with underscores.
    pub name: &'static str,
    body: fn(&mut Bench<'_>) -> Check,
}

impl Case {
    /// Runs the case. An error means that the device was lost and no further case makes sense; everything else is an
    /// [`Outcome`].
    pub fn run(&self, device: &mut dyn Device) -> Result<Outcome> {
        let mut bench = Bench::new(self.name, device);
        let checked = (self.body)(&mut bench);
        let cleaned = bench.clean();
        match checked.and(cleaned) {
            Ok(()) => Ok(Outcome::Passed),
            Err(Problem::Failed(text)) => Ok(Outcome::Failed(text)),
            Err(Problem::Skipped(reason)) => Ok(Outcome::Skipped(reason)),
            Err(Problem::Device(error)) if error.kind() == ErrorKind::DeviceLost => Err(error),
            Err(Problem::Device(error)) => Ok(Outcome::Failed(format!("{}: {error}", error.kind().name()))),
        }
    }
}

/// All cases.
pub fn cases() -> &'static [Case] {
    CASES
}

/// The outcomes of a run, in the order of [`cases`].
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Name and outcome of each case that ran.
    pub rows: Vec<(&'static str, Outcome)>,
}

impl Report {
    /// Number of cases that passed, failed and were skipped.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |test: fn(&Outcome) -> bool| self.rows.iter().filter(|(_, o)| test(o)).count();
        (
            count(|o| matches!(o, Outcome::Passed)),
            count(|o| matches!(o, Outcome::Failed(_))),
            count(|o| matches!(o, Outcome::Skipped(_))),
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, outcome) in &self.rows {
            match outcome {
                Outcome::Passed => writeln!(f, "passed  {name}")?,
                Outcome::Failed(text) => writeln!(f, "FAILED  {name}: {text}")?,
                Outcome::Skipped(reason) => writeln!(f, "skipped {name}: {reason}")?,
            }
        }
        let (passed, failed, skipped) = self.counts();
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// Runs every case. Fails only if the device is lost on the way.
pub fn run_all(device: &mut dyn Device) -> Result<Report> {
    let mut report = Report::default();
    for case in cases() {
        let outcome = case.run(device).map_err(|e| e.context(format!("conformance case `{}`", case.name)))?;
        report.rows.push((case.name, outcome));
    }
    Ok(report)
}

const CASES: &[Case] = &[
    Case { name: "buffers_start_zeroed", body: buffers::start_zeroed },
    Case { name: "buffers_bad_handles", body: buffers::bad_handles },
    Case { name: "buffers_write_and_read_at_offsets", body: buffers::write_and_read_at_offsets },
    Case { name: "buffers_write_alignment", body: buffers::write_alignment },
    Case { name: "buffers_bounds", body: buffers::bounds },
    Case { name: "buffers_above_the_limit", body: buffers::above_the_limit },
    Case { name: "buffers_of_no_bytes", body: buffers::of_no_bytes },
    Case { name: "buffers_memory_accounting", body: buffers::memory_accounting },
    Case { name: "buffers_64_mib_round_trip", body: buffers::large_round_trip },
    Case { name: "kernels_syntax_error_names_the_line", body: kernels::syntax_error },
    Case { name: "kernels_type_error_names_the_line", body: kernels::type_error },
    Case { name: "kernels_missing_entry_point", body: kernels::missing_entry_point },
    Case { name: "kernels_undeclared_binding", body: kernels::undeclared_binding },
    Case { name: "kernels_override_constants", body: kernels::override_constants },
    Case { name: "kernels_unknown_constant", body: kernels::unknown_constant },
    Case { name: "kernels_above_the_limits", body: kernels::above_the_limits },
    Case { name: "kernels_described_wrongly", body: kernels::misdescribed },
    Case { name: "kernels_missing_features", body: kernels::missing_features },
    Case { name: "kernels_bad_handles", body: kernels::bad_handles },
    Case { name: "lists_symbolic_grid", body: lists::symbolic_grid },
    Case { name: "lists_empty_grid_runs_nothing", body: lists::empty_grid },
    Case { name: "lists_grid_errors", body: lists::grid_errors },
    Case { name: "lists_symbolic_copies", body: lists::symbolic_copies },
    Case { name: "lists_copy_errors", body: lists::copy_errors },
    Case { name: "lists_fills", body: lists::fills },
    Case { name: "lists_200_dependent_dispatches", body: lists::dependent_dispatches },
    Case { name: "lists_mixed_commands_keep_their_order", body: lists::mixed_order },
    Case { name: "lists_two_interleaved", body: lists::two_interleaved },
    Case { name: "lists_binding_count", body: lists::binding_count },
    Case { name: "lists_binding_ranges", body: lists::binding_ranges },
    Case { name: "lists_binding_errors", body: lists::binding_errors },
    Case { name: "lists_aliased_writes_refused", body: lists::aliased_writes },
    Case { name: "lists_uniforms_at_offsets", body: lists::uniforms_at_offsets },
    Case { name: "lists_with_destroyed_parts", body: lists::destroyed_parts },
    Case { name: "lists_bad_handles", body: lists::bad_handles },
    Case { name: "steps_write_run_and_read", body: steps::write_run_read },
    Case { name: "steps_errors", body: steps::errors },
    Case { name: "language_builtin_values", body: language::builtin_values },
    Case { name: "language_workgroup_memory", body: language::workgroup_memory },
    Case { name: "language_atomics", body: language::atomics },
    Case { name: "language_integers", body: language::integers },
    Case { name: "language_floats", body: language::floats },
    Case { name: "language_control_flow", body: language::control_flow },
    Case { name: "language_layout_of_structs", body: language::layout_of_structs },
    Case { name: "language_local_arrays_and_functions", body: language::local_arrays },
    Case { name: "language_f16", body: language::half_floats },
    Case { name: "language_subgroups", body: language::subgroups },
];
