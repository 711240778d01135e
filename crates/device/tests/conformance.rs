//! The conformance suite on the null device: cases that run no kernel pass, and a device that computes nothing and
//! compiles nothing is found out by every other case.
#![allow(clippy::unwrap_used)]

use tapml_device::conformance::{CaseCounts, CaseOutcome, cases, run_all};
use tapml_device::null::NullDevice;
use tapml_device::{Features, Limits};

/// Cases that need neither a compiler nor a kernel's results.
const WITHOUT_KERNELS: [&str; 19] = [
    "buffers_start_zeroed",
    "buffers_bad_handles",
    "buffers_write_and_read_at_offsets",
    "buffers_write_alignment",
    "buffers_bounds",
    "buffers_above_the_limit",
    "buffers_of_no_bytes",
    "buffers_memory_accounting",
    "buffers_64_mib_round_trip",
    "kernels_bad_handles",
    "lists_symbolic_copies",
    "lists_copy_errors",
    "lists_fills",
    "lists_binding_count",
    "kernels_missing_features",
    "lists_binding_errors",
    "lists_bad_handles",
    "steps_write_run_and_read",
    "steps_errors",
];

#[test]
fn null_device_passes_what_runs_no_kernel_and_fails_the_rest() {
    let features = Features {
        f16: true,
        subgroups: Some((4, 4)),
        cuda: None,
        matrices: false,
        device_barriers: false,
        processors: None,
    };
    let report = run_all(&mut NullDevice::new(Limits::WEBGPU, features)).unwrap();
    for (name, outcome) in &report.rows {
        let passes = WITHOUT_KERNELS.contains(name);
        match outcome {
            CaseOutcome::Passed => assert!(passes, "{name} passes on a device that computes nothing"),
            CaseOutcome::Failed(text) => assert!(!passes, "{name}: {text}"),
            CaseOutcome::Skipped(reason) => panic!("{name}: {reason}"),
        }
    }
    assert_eq!(report.counts(), CaseCounts { passed: 19, failed: 28, skipped: 0 }, "{report}");
}

#[test]
fn cases_that_a_device_cannot_run_are_skipped_with_the_reason() {
    let limits = Limits { max_buffer_size: 1 << 20, ..Limits::WEBGPU };
    let mut device = NullDevice::new(limits, Features::default());
    let outcome = |name: &str| {
        let case = cases().iter().find(|c| c.name == name).unwrap();
        case.run(&mut device).unwrap()
    };
    let skipped = ["buffers_64_mib_round_trip", "language_f16", "language_subgroups"].map(outcome);
    let reasons = [
        "the largest buffer is 1048576 bytes",
        "the device has no f16",
        "the device has no subgroup operations",
    ];
    assert_eq!(skipped, reasons.map(|r| CaseOutcome::Skipped(r.into())));
}

#[test]
fn names_differ() {
    let mut names: Vec<_> = cases().iter().map(|c| c.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases().len());
}
