//! The device on a driver that is no driver (`stub.rs`): books, transfers, graphs and errors, which need no result of a
//! kernel.

use super::*;
use crate::stub;
use tapml_device::conformance::{CaseOutcome, cases};
use tapml_device::{Binding, BindingKind, Extent, Language, Source};
use tapml_graph::{Dim, Symbol};

fn device(options: &str) -> CudaDevice {
    let options = CudaOptions::parse(options).unwrap();
    let opened = adapter::open_on(&stub::API, 0, 13_000, options).unwrap();
    let folder = std::env::temp_dir().join("tapml-cuda-stub");
    CudaDevice::from_opened(opened, None, options, Cache::in_folder(folder)).unwrap()
}

/// A kernel that was never compiled.
fn kernel(device: &mut CudaDevice, name: &str, overlaps: bool) -> KernelId {
    kernel_with_constants(device, name, overlaps, &[])
}

fn kernel_with_constants(
    device: &mut CudaDevice,
    name: &str,
    overlaps: bool,
    constants: &[(&str, f64)],
) -> KernelId {
    let source =
        Source { language: Language::Cuda, file: "k.cu".into(), prelude: String::new(), text: String::new() };
    let desc = KernelDesc {
        name: format!("{name}/cuda"),
        source,
        entry: name.into(),
        constants: constants.iter().map(|(name, value)| (name.to_string(), *value)).collect(),
        bindings: vec![BindingKind::ReadWrite],
        workgroup: [32, 1, 1],
        workgroup_memory: 0,
        needs_f16: false,
        needs_subgroups: false,
        dependent_launch: overlaps,
    };
    let id = device.handles.create_kernel(&desc).unwrap();
    let raw = device.driver.kernel(b"\x7fELF", name).unwrap().unwrap();
    let cluster = crate::cluster::ClusterRule::from_desc(&desc).unwrap();
    device.kernels.insert(
        id,
        crate::compile::Compiled {
            kernel: Arc::new(raw),
            name: desc.name,
            args: vec![tapml_cfamily::Arg::Pointer(0), tapml_cfamily::Arg::Bytes(0)],
            maps: Vec::new(),
            min_sizes: vec![4],
            workgroup: desc.workgroup,
            shared: 0,
            dependent_launch: overlaps,
            cluster,
        },
    );
    id
}

fn dispatch(label: &str, kernel: KernelId, buffer: BufferId, groups: Dim) -> Command {
    let groups = [Extent::from_dim(groups), Extent::from_dim(1u64), Extent::from_dim(1u64)];
    Command::Dispatch { label: label.into(), kernel, bindings: vec![Binding::whole(buffer)], groups }
}

fn n() -> Dim {
    Dim::symbol(Symbol::N)
}

#[test]
fn conformance_of_what_runs_no_kernel() {
    let mut device = device("");
    for case in cases() {
        let transfers = ["buffers_", "steps_"].iter().any(|start| case.name.starts_with(start));
        let books = ["lists_symbolic_copies", "lists_copy_errors", "lists_fills", "kernels_missing_features"];
        if (transfers && case.name != "steps_write_run_and_read" && case.name != "steps_errors")
            || books.contains(&case.name)
        {
            let outcome = case.run(&mut device).unwrap();
            assert!(!matches!(outcome, CaseOutcome::Failed(_)), "{}: {outcome:?}", case.name);
        }
    }
    assert_eq!(device.memory().0, 0);
    drop(device);
    assert_eq!(stub::allocated_bytes(), 0);
}

#[test]
fn large_and_many_transfers_arrive() {
    let mut device = device("");
    let large = device.create_buffer("large", 30 << 20).unwrap();
    let bytes: Vec<u8> = (0..30u32 << 18).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    device.write(large, 0, &bytes).unwrap();
    for i in 0..2000u32 {
        device.write(large, u64::from(i) * 12, &i.to_le_bytes()).unwrap();
    }
    let mut expected = bytes;
    (0..2000usize).for_each(|i| expected[i * 12..i * 12 + 4].copy_from_slice(&(i as u32).to_le_bytes()));
    let mut out = vec![0; expected.len()];
    device.read(large, 0, &mut out).unwrap();
    assert!(out == expected);
    let mut part = vec![0; 9 << 20];
    device.read(large, 4000, &mut part).unwrap();
    assert!(part == expected[4000..4000 + part.len()]);
}

/// Five launches, of which two may overlap, a copy among them.
fn list(device: &mut CudaDevice) -> (ListId, KernelId, BufferId) {
    let (plain, overlapping) = (kernel(device, "plain", false), kernel(device, "over", true));
    let buffer = device.create_buffer("words", 64).unwrap();
    let other = device.create_buffer("other", 64).unwrap();
    let zero = || Extent::from_dim(0u64);
    let commands = [
        dispatch("a", overlapping, buffer, n()),
        dispatch("b", overlapping, buffer, Dim::from(2u64)),
        dispatch("c", plain, buffer, Dim::from(1u64)),
        Command::Copy {
            src: buffer,
            src_offset: zero(),
            dst: other,
            dst_offset: zero(),
            len: Extent::from_dim(8u64),
        },
        dispatch("d", overlapping, buffer, Dim::from(1u64)),
    ];
    (device.record(&commands).unwrap(), plain, other)
}

const ONE: [&str; 4] = ["over 1x1x1", "over 2x1x1 overlaps", "plain 1x1x1", "over 1x1x1"];

fn as_graph(calls: &[&str]) -> Vec<String> {
    std::iter::once("graph").chain(calls.iter().copied()).map(String::from).collect()
}

#[test]
fn a_geometry_that_comes_again_is_one_graph() {
    let mut device = device("");
    let (list, ..) = list(&mut device);
    let mut run = |n: u64, p: u64| {
        device.replay(list, &Symbols::np(n, p)).unwrap();
        stub::take_launches()
    };
    // Whatever does not change a size leaves the graph as it is.
    assert_eq!(run(1, 0), ONE);
    assert_eq!(run(1, 1), as_graph(&ONE));
    assert_eq!(run(1, 2), as_graph(&ONE));
    let three = ["over 3x1x1", "over 2x1x1 overlaps", "plain 1x1x1", "over 1x1x1"];
    assert_eq!(run(3, 0), three);
    assert_eq!(run(3, 0), as_graph(&three));
    assert_eq!(run(1, 9), as_graph(&ONE));
    // An empty grid is no call, and nothing overlaps what is in front of it in vain.
    let none = ["over 2x1x1", "plain 1x1x1", "over 1x1x1"];
    assert_eq!(run(0, 0), none);
}

#[test]
fn few_rows_run_in_clusters() {
    let mut device = device("");
    let constants = [("CLUSTER", 8.0), ("CLUSTER_ROWS", 4.0)];
    let clustered = kernel_with_constants(&mut device, "few", true, &constants);
    let buffer = device.create_buffer("words", 64).unwrap();
    let groups = [Extent::from_dim(2u64), Extent::from_dim(n()), Extent::from_dim(1u64)];
    let command = |label: &str| {
        let (bindings, groups) = (vec![Binding::whole(buffer)], groups.clone());
        Command::Dispatch { label: label.into(), kernel: clustered, bindings, groups }
    };
    let list = device.record(&[command("a"), command("b")]).unwrap();
    let mut run = |rows| {
        device.replay(list, &Symbols::np(rows, 0)).unwrap();
        stub::take_launches()
    };
    assert_eq!(run(4), ["few 16x4x1 clusters of 8", "few 16x4x1 overlaps clusters of 8"]);
    assert_eq!(run(5), ["few 2x5x1", "few 2x5x1 overlaps"]);
}

#[test]
fn graphs_can_be_declined_by_the_user_and_by_the_driver() {
    let mut off = device("graphs=off");
    let (id, ..) = list(&mut off);
    for _ in 0..3 {
        off.replay(id, &Symbols::np(1, 0)).unwrap();
        assert_eq!(stub::take_launches(), ONE);
    }
    let mut device = device("");
    let (id, ..) = list(&mut device);
    stub::fail_to_capture(true);
    for _ in 0..3 {
        device.replay(id, &Symbols::np(1, 0)).unwrap();
        assert_eq!(stub::take_launches(), ONE);
    }
    stub::fail_to_capture(false);
    device.replay(id, &Symbols::np(1, 0)).unwrap();
    assert_eq!(stub::take_launches(), as_graph(&ONE));
}

#[test]
fn a_list_with_a_graph_is_refused_once_a_part_is_gone() {
    let mut device = device("");
    let (list, plain, other) = list(&mut device);
    let unrelated = device.create_buffer("unrelated", 4).unwrap();
    let symbols = Symbols::np(1, 0);
    (0..3).for_each(|_| device.replay(list, &symbols).unwrap());
    device.destroy_buffer(unrelated).unwrap();
    stub::take_launches();
    device.replay(list, &symbols).unwrap();
    assert_eq!(stub::take_launches(), as_graph(&ONE), "what the list does not use");
    device.destroy_buffer(other).unwrap();
    for _ in 0..2 {
        assert_eq!(device.replay(list, &symbols).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    device.destroy_kernel(plain).unwrap();
    assert_eq!(device.replay(list, &symbols).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(stub::take_launches().is_empty());
}

#[test]
fn a_short_binding_is_refused() {
    let mut device = device("");
    let kernel = kernel(&mut device, "plain", false);
    let buffer = device.create_buffer("empty", 0).unwrap();
    let error = device.record(&[dispatch("a", kernel, buffer, Dim::from(1u64))]).unwrap_err();
    assert!(error.to_string().contains("it needs at least 4"), "{error}");
}

#[test]
fn an_illegal_address_loses_the_device_and_names_the_kernel_where_it_can() {
    let fault = |options: &str, labels: &[&str]| {
        let mut device = device(options);
        let kernel = kernel(&mut device, "plain", false);
        let buffer = device.create_buffer("words", 64).unwrap();
        let commands: Vec<Command> =
            labels.iter().map(|label| dispatch(label, kernel, buffer, Dim::from(1u64))).collect();
        let list = device.record(&commands).unwrap();
        device.wait().unwrap();
        stub::fail_to_wait(700);
        let error = device.replay(list, &Symbols::new()).and_then(|()| device.wait()).unwrap_err();
        stub::fail_to_wait(0);
        assert_eq!(error.kind(), ErrorKind::DeviceLost);
        let later = device.wait().unwrap_err();
        assert_eq!((later.kind(), later.hint()), (ErrorKind::DeviceLost, Some("open the device again")));
        error
    };
    let one = fault("", &["norm"]);
    assert_eq!(one.detail("kernel"), Some("plain/cuda"));
    assert!(one.to_string().contains("dispatch `norm` of kernel `plain/cuda`"), "{one}");
    let many = fault("", &["a", "b", "c"]);
    assert!(many.to_string().contains("one of 3 dispatches"), "{many}");
    assert!(many.hint().unwrap().contains("sync=on"));
    let told = fault("sync=on", &["a", "b", "c"]);
    assert!(told.to_string().contains("dispatch `a` of kernel `plain/cuda`"), "{told}");
}

#[test]
fn without_memory_the_rest_goes_on() {
    let mut device = device("");
    let small = device.create_buffer("small", 64).unwrap();
    let error = device.create_buffer("large", stub::MEMORY as u64 + 4).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(
        error.to_string().contains("`large`") && error.hint().unwrap().contains("1024 of 2048 MiB"),
        "{error}"
    );
    device.write(small, 0, &[1; 64]).unwrap();
    assert_eq!(device.memory().0, 64);
}

#[test]
fn commands_are_timed_one_by_one() {
    let mut device = device("");
    let kernel = kernel(&mut device, "plain", false);
    let buffer = device.create_buffer("words", 64).unwrap();
    let commands = [dispatch("a", kernel, buffer, n()), dispatch("b", kernel, buffer, Dim::from(1u64))];
    let seconds = device.time_commands(&commands, &Symbols::np(0, 0)).unwrap();
    assert_eq!(seconds, [0.0, 0.0005], "an empty grid takes no time");
}

#[test]
fn memory_of_another_device_is_used_until_both_have_freed_it() {
    let before = stub::allocated_bytes();
    let (mut first, mut second) = (device(""), device(""));
    let own = first.create_buffer("own", 64).unwrap();
    let memory = first.export_buffer(own).unwrap();
    let shared = second.import_buffer("meeting@0", &memory).unwrap();
    second.write(shared, 0, &[7; 64]).unwrap();
    let mut found = [0; 64];
    first.read(own, 0, &mut found).unwrap();
    assert_eq!(found, [7; 64]);
    first.destroy_buffer(own).unwrap();
    drop((memory, first));
    second.read(shared, 0, &mut found).unwrap();
    assert_eq!(found, [7; 64]);
    drop(second);
    assert_eq!(stub::allocated_bytes(), before);
    let mut alone = device("peers=off");
    let own = alone.create_buffer("own", 64).unwrap();
    let error = alone.export_buffer(own).unwrap_err();
    assert!(error.hint().unwrap().contains("without `peers=off`"), "{error}");
}
