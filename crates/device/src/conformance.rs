//! The device conformance suite: what every [`Device`] must do, as small cases with WGSL kernels. A new backend, a remote
//! device and the emulator run the same list. Cases leave the device as they found it.
//!
//! Results are exact: cases use integers and float operations that the WGSL specification rounds in one
//! way. A case that needs a feature is skipped where the device does not tell it.

mod bench;
mod buffers;
mod kernels;
mod language;
mod lists;
mod steps;

use crate::Device;
use bench::{Bench, Check, EarlyEnd};
use std::fmt;
use tapml_graph::{ErrorKind, Result};

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseOutcome {
    /// The device does what the case asks for.
    Passed,
    /// It does not; the text says what was expected and found.
    Failed(String),
    /// The device does not offer what the case needs; the text names it.
    Skipped(String),
}

/// One requirement.
#[derive(Clone, Copy)]
pub struct ConformanceCase {
    /// Name in lower case with underscores.
    pub name: &'static str,
    /// What is checked; it ends early by `?`.
    body: fn(&mut Bench<'_>) -> Check,
}

impl ConformanceCase {
    /// Runs the case. An error means that the device was lost and no further case makes sense; everything else is an
    /// [`CaseOutcome`].
    pub fn run(&self, device: &mut dyn Device) -> Result<CaseOutcome> {
        let mut bench = Bench::new(self.name, device);
        let checked = (self.body)(&mut bench);
        // Always cleaned, also after a failure: the next case counts memory.
        let cleaned = bench.clean();
        match checked.and(cleaned) {
            Ok(()) => Ok(CaseOutcome::Passed),
            Err(EarlyEnd::Failed(text)) => Ok(CaseOutcome::Failed(text)),
            Err(EarlyEnd::Skipped(reason)) => Ok(CaseOutcome::Skipped(reason)),
            Err(EarlyEnd::Device(error)) if error.kind() == ErrorKind::DeviceLost => Err(error),
            Err(EarlyEnd::Device(error)) => {
                Ok(CaseOutcome::Failed(format!("{}: {error}", error.kind().name())))
            }
        }
    }
}

/// All cases.
pub fn cases() -> &'static [ConformanceCase] {
    CASES
}

/// The outcomes of a run, in the order of [`cases`].
#[derive(Clone, Debug, Default)]
pub struct ConformanceReport {
    /// Name and outcome of each case that ran.
    pub rows: Vec<(&'static str, CaseOutcome)>,
}

/// Cases by their outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaseCounts {
    /// Those that passed.
    pub passed: usize,
    /// Those that failed.
    pub failed: usize,
    /// Those that say nothing about this device.
    pub skipped: usize,
}

impl ConformanceReport {
    /// How many cases had which outcome.
    pub fn counts(&self) -> CaseCounts {
        let count = |test: fn(&CaseOutcome) -> bool| self.rows.iter().filter(|(_, o)| test(o)).count();
        CaseCounts {
            passed: count(|o| matches!(o, CaseOutcome::Passed)),
            failed: count(|o| matches!(o, CaseOutcome::Failed(_))),
            skipped: count(|o| matches!(o, CaseOutcome::Skipped(_))),
        }
    }
}

impl fmt::Display for ConformanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, outcome) in &self.rows {
            match outcome {
                CaseOutcome::Passed => writeln!(f, "passed  {name}")?,
                CaseOutcome::Failed(text) => writeln!(f, "FAILED  {name}: {text}")?,
                CaseOutcome::Skipped(reason) => writeln!(f, "skipped {name}: {reason}")?,
            }
        }
        let CaseCounts { passed, failed, skipped } = self.counts();
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// Runs every case. Fails only if the device is lost on the way.
pub fn run_all(device: &mut dyn Device) -> Result<ConformanceReport> {
    let mut report = ConformanceReport::default();
    for case in cases() {
        let outcome = case.run(device).map_err(|e| e.context(format!("conformance case `{}`", case.name)))?;
        report.rows.push((case.name, outcome));
    }
    Ok(report)
}

const CASES: &[ConformanceCase] = &[
    ConformanceCase { name: "buffers_start_zeroed", body: buffers::start_zeroed },
    ConformanceCase { name: "buffers_bad_handles", body: buffers::bad_handles },
    ConformanceCase { name: "buffers_write_and_read_at_offsets", body: buffers::write_and_read_at_offsets },
    ConformanceCase { name: "buffers_write_alignment", body: buffers::write_alignment },
    ConformanceCase { name: "buffers_bounds", body: buffers::bounds },
    ConformanceCase { name: "buffers_above_the_limit", body: buffers::above_the_limit },
    ConformanceCase { name: "buffers_of_no_bytes", body: buffers::of_no_bytes },
    ConformanceCase { name: "buffers_memory_accounting", body: buffers::memory_accounting },
    ConformanceCase { name: "buffers_64_mib_round_trip", body: buffers::large_round_trip },
    ConformanceCase { name: "kernels_syntax_error_names_the_line", body: kernels::syntax_error },
    ConformanceCase { name: "kernels_type_error_names_the_line", body: kernels::type_error },
    ConformanceCase { name: "kernels_missing_entry_point", body: kernels::missing_entry_point },
    ConformanceCase { name: "kernels_undeclared_binding", body: kernels::undeclared_binding },
    ConformanceCase { name: "kernels_override_constants", body: kernels::override_constants },
    ConformanceCase { name: "kernels_unknown_constant", body: kernels::unknown_constant },
    ConformanceCase { name: "kernels_above_the_limits", body: kernels::above_the_limits },
    ConformanceCase { name: "kernels_described_wrongly", body: kernels::check_misdescribed },
    ConformanceCase { name: "kernels_missing_features", body: kernels::missing_features },
    ConformanceCase { name: "kernels_bad_handles", body: kernels::bad_handles },
    ConformanceCase { name: "lists_symbolic_grid", body: lists::symbolic_grid },
    ConformanceCase { name: "lists_empty_grid_runs_nothing", body: lists::empty_grid },
    ConformanceCase { name: "lists_grid_errors", body: lists::grid_errors },
    ConformanceCase { name: "lists_symbolic_copies", body: lists::symbolic_copies },
    ConformanceCase { name: "lists_copy_errors", body: lists::copy_errors },
    ConformanceCase { name: "lists_fills", body: lists::fills },
    ConformanceCase { name: "lists_200_dependent_dispatches", body: lists::dependent_dispatches },
    ConformanceCase { name: "lists_mixed_commands_keep_their_order", body: lists::mixed_order },
    ConformanceCase { name: "lists_two_interleaved", body: lists::two_interleaved },
    ConformanceCase { name: "lists_binding_count", body: lists::binding_count },
    ConformanceCase { name: "lists_binding_ranges", body: lists::binding_ranges },
    ConformanceCase { name: "lists_binding_errors", body: lists::binding_errors },
    ConformanceCase { name: "lists_aliased_writes_refused", body: lists::aliased_writes },
    ConformanceCase { name: "lists_uniforms_at_offsets", body: lists::uniforms_at_offsets },
    ConformanceCase { name: "lists_with_destroyed_parts", body: lists::destroyed_parts },
    ConformanceCase { name: "lists_bad_handles", body: lists::bad_handles },
    ConformanceCase { name: "steps_write_run_and_read", body: steps::write_run_read },
    ConformanceCase { name: "steps_errors", body: steps::errors },
    ConformanceCase { name: "language_builtin_values", body: language::builtin_values },
    ConformanceCase { name: "language_workgroup_memory", body: language::workgroup_memory },
    ConformanceCase { name: "language_atomics", body: language::atomics },
    ConformanceCase { name: "language_integers", body: language::integers },
    ConformanceCase { name: "language_floats", body: language::floats },
    ConformanceCase { name: "language_control_flow", body: language::control_flow },
    ConformanceCase { name: "language_layout_of_structs", body: language::layout_of_structs },
    ConformanceCase { name: "language_local_arrays_and_functions", body: language::local_arrays },
    ConformanceCase { name: "language_f16", body: language::half_floats },
    ConformanceCase { name: "language_subgroups", body: language::subgroups },
];
