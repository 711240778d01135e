//! Every kind of finding, with its line, and silence on kernels that are right.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Arg, Run, bits};
use tapml_device::{Finding, FindingKind};

fn run(text: &str, workgroup: u32, groups: u32, args: Vec<Arg>) -> Vec<Finding> {
    Run::new(text, workgroup, args).options("check=all&threads=2").groups(groups).findings()
}

/// The one finding, which must lie at the line that holds `mark`.
fn only_finding(findings: &[Finding], kind: FindingKind, text: &str, mark: &str) -> Finding {
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let line = text.lines().position(|l| l.contains(mark)).expect("the mark is in the text") as u32 + 1;
    let finding = findings[0].clone();
    assert_eq!((finding.kind, finding.line), (kind, line), "{finding}");
    assert!(
        finding.source.contains(mark) && finding.file == "test.wgsl" && finding.column > 0,
        "{finding:?}"
    );
    finding
}

#[test]
fn out_of_bounds() {
    let text = "
        @group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            y[id.x] = x[id.x + 1u]; // here
        }";
    let findings = run(text, 64, 2, vec![Arg::Read(vec![1; 128]), Arg::ReadWrite(vec![0; 128])]);
    let finding = only_finding(&findings, FindingKind::OutOfBounds, text, "here");
    assert_eq!((finding.workgroup, finding.invocation, finding.count), ([1, 0, 0], 63, 1));
    assert!(finding.message.contains("index 128 of 128 elements in `x`"), "{finding}");
}

#[test]
fn out_of_bounds_of_local_arrays_and_vectors() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(8)
        fn main(@builtin(local_invocation_index) i: u32) {
            var a = array<u32, 4>(1u, 2u, 3u, 4u);
            var v = vec3<u32>(1u, 2u, 3u);
            y[i] = a[i]; // array
            y[i] += v[i]; // vector
            y[i] += a[i32(i) - 1]; // negative
        }";
    let findings = run(text, 8, 1, vec![Arg::ReadWrite(vec![0; 8])]);
    let lines: Vec<_> =
        findings.iter().map(|f| (f.kind, f.count, f.source.rsplit(' ').next().unwrap())).collect();
    let oob = FindingKind::OutOfBounds;
    assert_eq!(lines, [(oob, 4, "array"), (oob, 5, "vector"), (oob, 4, "negative")]);
    assert!(findings[2].message.contains("(-1 as i32)"), "{}", findings[2]);
}

#[test]
fn uninitialized_reads() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(16)
        fn main(@builtin(local_invocation_index) i: u32) {
            if (i < 8u) { x[i] = 1.0; }
            storageBarrier();
            y[i] = x[i]; // unwritten
        }";
    let findings = run(text, 16, 1, vec![Arg::Fresh(16), Arg::Fresh(16)]);
    let finding = only_finding(&findings, FindingKind::UninitializedRead, text, "unwritten");
    assert_eq!((finding.invocation, finding.count), (8, 8));
    assert!(finding.message.contains("`x` at byte 32"), "{finding}");
    let quiet = run(text, 16, 1, vec![Arg::ReadWrite(vec![0; 16]), Arg::Fresh(16)]);
    assert!(quiet.is_empty(), "{quiet:#?}");
}

#[test]
fn uninitialized_workgroup_memory() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> y: array<f32>;
        var<workgroup> part: array<f32, 32>;
        @compute @workgroup_size(16)
        fn main(@builtin(local_invocation_index) i: u32) {
            part[i] = f32(i);
            workgroupBarrier();
            y[i] = part[i + 1u]; // past the written part
        }";
    let findings = run(text, 16, 2, vec![Arg::Fresh(16)]);
    let uninit: Vec<_> =
        findings.iter().filter(|f| f.kind == FindingKind::UninitializedRead).cloned().collect();
    let finding = only_finding(&uninit, FindingKind::UninitializedRead, text, "past the written");
    assert_eq!((finding.invocation, finding.count), (15, 2));
}

#[test]
fn a_missing_barrier_is_a_race() {
    let text = |barrier: &str| {
        format!(
            "
        @group(0) @binding(0) var<storage, read_write> y: array<f32>;
        var<workgroup> part: array<f32, 64>;
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32) {{
            part[i] = f32(i);
            workgroupBarrier();
            for (var half = 32u; half > 0u; half >>= 1u) {{
                if (i < half) {{
                    part[i] += part[i + half]; // reduce
                }}
                {barrier}
            }}
            if (i == 0u) {{ y[0] = part[0]; }}
        }}"
        )
    };
    let wrong = text("");
    let findings = run(&wrong, 64, 1, vec![Arg::Fresh(1)]);
    let finding = only_finding(&findings, FindingKind::RaceInWorkgroup, &wrong, "reduce");
    assert!(
        finding.message.contains("of `part`") && finding.message.contains("no barrier between"),
        "{finding}"
    );
    assert_eq!(
        run(&text("workgroupBarrier();"), 64, 3, vec![Arg::Fresh(1)])
            .iter()
            .filter(|f| f.kind == FindingKind::RaceInWorkgroup)
            .count(),
        0
    );
}

#[test]
fn races_across_workgroups() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> sum: array<u32>;
        @group(0) @binding(1) var<storage, read_write> count: atomic<u32>;
        @compute @workgroup_size(1)
        fn main(@builtin(workgroup_id) group: vec3<u32>) {
            atomicAdd(&count, 1u);
            sum[group.x % 2u] = 1u; // shared
        }";
    let findings = run(text, 1, 4, vec![Arg::ReadWrite(vec![0; 2]), Arg::ReadWrite(vec![0])]);
    let finding = only_finding(&findings, FindingKind::RaceAcrossWorkgroups, text, "shared");
    assert_eq!(finding.count, 2);
    assert!(run(text, 1, 2, vec![Arg::ReadWrite(vec![0; 2]), Arg::ReadWrite(vec![0])]).is_empty());
}

#[test]
fn same_value_writes_within_a_workgroup_race() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> flag: array<u32>;
        @compute @workgroup_size(32)
        fn main(@builtin(local_invocation_index) i: u32) {
            if (i > 3u) { flag[0] = 1u; } // all write
        }";
    let finding = only_finding(
        &run(text, 32, 1, vec![Arg::ReadWrite(vec![0])]),
        FindingKind::RaceInWorkgroup,
        text,
        "all write",
    );
    assert_eq!(finding.invocation, 5);
}

#[test]
fn barriers_in_divergent_flow() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(32)
        fn main(@builtin(local_invocation_index) i: u32) {
            if (y[i] > 100u) { return; }
            workgroupBarrier(); // after return
            y[i] += 1u;
        }";
    let words: Vec<u32> = (0..32).map(|i| if i == 7 { 200 } else { 0 }).collect();
    let findings = Run::new(text, 32, vec![Arg::ReadWrite(words)]).options("check=barrier").findings();
    let finding = only_finding(&findings, FindingKind::DivergentBarrier, text, "after return");
    let message = &finding.message;
    assert!(message.contains("31 of 32") && message.contains("invocation 7 does not"), "{finding}");
}

#[test]
fn barriers_in_branches_and_loops_that_split() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(16)
        fn main(@builtin(local_invocation_index) i: u32) {
            if (y[0] == 0u) { workgroupBarrier(); } // uniform
            if (i < 4u) { workgroupBarrier(); } // branch
            for (var k = 0u; k < i; k++) {
                storageBarrier(); // loop
            }
        }";
    let findings = run(text, 16, 1, vec![Arg::ReadWrite(vec![0])]);
    let lines: Vec<_> = findings.iter().map(|f| (f.kind, f.source.rsplit(' ').next().unwrap())).collect();
    let kind = FindingKind::DivergentBarrier;
    assert_eq!(lines, [(kind, "branch"), (kind, "loop")]);
    assert_eq!(findings[1].count, 15);
}

#[test]
fn the_first_non_finite_value() {
    let text = "
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(8)
        fn main(@builtin(local_invocation_index) i: u32) {
            let e = exp(x[i]); // born
            let sum = e + 1.0;
            y[i] = e / sum;
        }";
    let x: Vec<f32> = (0..8).map(|i| i as f32 * 20.0).collect();
    let finding = only_finding(
        &run(text, 8, 1, vec![Arg::Read(bits(&x)), Arg::Fresh(8)]),
        FindingKind::NonFinite,
        text,
        "born",
    );
    assert_eq!((finding.invocation, finding.count), (5, 3));
    assert!(finding.message.contains("exp(100.0) gives inf"), "{finding}");
}

#[test]
fn non_finite_operands_are_named() {
    let text = "
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(2)
        fn main(@builtin(local_invocation_index) i: u32) {
            y[i] = x[0] / x[1]; // quotient
        }";
    let finding = only_finding(
        &run(text, 2, 1, vec![Arg::Read(bits(&[3.0, 0.0])), Arg::Fresh(2)]),
        FindingKind::NonFinite,
        text,
        "quotient",
    );
    assert!(finding.message.contains("3.0 / 0.0 gives inf"), "{finding}");
}

#[test]
fn lines_count_within_the_text_and_repeats_are_counted() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(4)
        fn main(@builtin(local_invocation_index) i: u32) {
            for (var k = 0u; k < 3u; k++) { y[i + 2u] = k; } // loop
        }";
    let mut run = Run::new(text, 4, vec![Arg::ReadWrite(vec![0; 4])]).options("check=bounds");
    run.prelude = "alias T = f32;\nconst A = 1;\n".into();
    let finding = only_finding(&run.findings(), FindingKind::OutOfBounds, text, "loop");
    assert_eq!(finding.count, 6);
}

#[test]
fn without_checks_nothing_is_reported_and_accesses_clamp() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(4)
        fn main(@builtin(local_invocation_index) i: u32) {
            y[i + 2u] = i;
        }";
    let (buffers, findings) = Run::new(text, 4, vec![Arg::ReadWrite(vec![9; 4])]).run().unwrap();
    assert!(findings.is_empty());
    assert_eq!(buffers[0][..3], [9, 9, 0]);
}

#[test]
fn subgroup_operations_in_divergent_flow() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32) {
            if (i < 40u) { y[i] = subgroupAdd(1u); } // second subgroup splits
        }";
    let finding =
        only_finding(&run(text, 64, 1, vec![Arg::Fresh(64)]), FindingKind::DivergentBarrier, text, "splits");
    assert!(finding.message.contains("8 of 32"), "{finding}");
}

#[test]
fn limits_exceeded_are_findings_too() {
    use tapml_device::Device;
    let text = "@compute @workgroup_size(512) fn main() { }";
    let run = Run::new(text, 512, vec![]).options("check=all");
    let mut device = tapml_emulator::Emulator::new(run.options).unwrap();
    let error = device.create_kernel(&run.desc()).unwrap_err();
    let findings = device.take_findings();
    assert_eq!((error.detail("limit"), findings.len()), (Some("max_invocations"), 1));
    assert_eq!(findings[0].kind, FindingKind::LimitExceeded);
    assert!(findings[0].message.contains("512") && findings[0].message.contains("256"), "{}", findings[0]);
}

#[test]
fn findings_survive_a_kernel_that_is_stopped() {
    use std::time::Duration;
    use tapml_device::Device;
    let text = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(4)
        fn main(@builtin(local_invocation_index) i: u32) {
            y[i + 1u] = 0u; // past
            loop { if (y[0] == 1u) { break; } }
        }";
    let run = Run::new(text, 4, vec![Arg::ReadWrite(vec![0; 4])]).options("check=bounds");
    let mut device =
        tapml_emulator::Emulator::new(run.options).unwrap().with_time_limit(Duration::from_millis(30));
    let kernel = device.create_kernel(&run.desc()).unwrap();
    assert!(run.run_on(&mut device, kernel).is_err());
    only_finding(&device.take_findings(), FindingKind::OutOfBounds, text, "past");
}
