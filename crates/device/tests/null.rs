//! The null device does all that a device must do short of running kernels.

use tapml_device::conformance::{CaseOutcome, cases};
use tapml_device::null::NullDevice;
use tapml_device::{
    Binding, BindingKind, Command, Device, ErrorKind, Extent, Features, KernelDesc, Language, Limits, Source,
    Symbols,
};

/// Cases that ask for no result of a kernel.
const HOLDS: &[&str] = &[
    "buffers_start_zeroed",
    "buffers_bad_handles",
    "buffers_write_and_read_at_offsets",
    "buffers_write_alignment",
    "buffers_bounds",
    "buffers_above_the_limit",
    "buffers_of_no_bytes",
    "buffers_memory_accounting",
    "buffers_64_mib_round_trip",
    "kernels_missing_features",
    "kernels_bad_handles",
    "lists_symbolic_copies",
    "lists_copy_errors",
    "lists_fills",
    "lists_binding_count",
    "lists_binding_errors",
    "lists_bad_handles",
];

#[test]
fn conformance_cases_without_kernels_pass() {
    for name in HOLDS {
        let case = cases().iter().find(|c| c.name == *name).unwrap_or_else(|| panic!("no case {name}"));
        let mut device = NullDevice::new(Limits::WEBGPU, Features::default());
        assert_eq!(case.run(&mut device).unwrap(), CaseOutcome::Passed, "{name}");
        assert_eq!(device.memory().0, 0, "{name}");
    }
}

fn small() -> NullDevice {
    let limits =
        Limits { max_buffer_size: 4096, max_binding_size: 1024, max_uniform_size: 256, ..Limits::WEBGPU };
    NullDevice::new(limits, Features::default())
}

fn desc(bindings: &[BindingKind]) -> KernelDesc {
    let source = Source {
        language: Language::Wgsl,
        file: "k.wgsl".into(),
        prelude: String::new(),
        text: String::new(),
    };
    KernelDesc {
        name: "op/variant".into(),
        source,
        entry: "main".into(),
        constants: Vec::new(),
        bindings: bindings.to_vec(),
        workgroup: [64, 1, 1],
        workgroup_memory: 0,
        needs_f16: false,
        needs_subgroups: false,
        dependent_launch: false,
    }
}

#[test]
fn a_refused_replay_changes_nothing() {
    let mut device = small();
    let src = device.create_buffer("src", 16).unwrap();
    let dst = device.create_buffer("dst", 16).unwrap();
    device.write(src, 0, &[7; 16]).unwrap();
    let copy = |dst_offset: u64| Command::Copy {
        src,
        src_offset: Extent::from_dim(0u64),
        dst,
        dst_offset: Extent::from_dim(dst_offset),
        len: Extent::from_dim(4u64),
    };
    let list = device.record(&[copy(0), Command::Fill { buffer: src, word: 1 }, copy(16)]).unwrap();
    let error = device.replay(list, &Symbols::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("4 bytes at 16 of `dst`"), "{error}");
    let mut bytes = [1; 16];
    device.read(dst, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 16]);
    device.read(src, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 16]);
}

#[test]
fn bindings_keep_the_limits_and_aliasing_rules() {
    let mut device = small();
    let large = device.create_buffer("large", 2048).unwrap();
    let uniform = device.create_kernel(&desc(&[BindingKind::Uniform])).unwrap();
    let pair = device.create_kernel(&desc(&[BindingKind::Read, BindingKind::ReadWrite])).unwrap();
    let readers = device.create_kernel(&desc(&[BindingKind::Read, BindingKind::Read])).unwrap();
    let mut record = |kernel, bindings: &[Binding]| {
        let groups = [Extent::from_dim(1u64), Extent::from_dim(1u64), Extent::from_dim(1u64)];
        let dispatch =
            Command::Dispatch { label: "node".into(), kernel, bindings: bindings.to_vec(), groups };
        device.record(&[dispatch])
    };
    let part = |offset, size| Binding { buffer: large, offset, size };
    record(uniform, &[part(256, 256)]).unwrap();
    let error = record(uniform, &[part(0, 260)]).unwrap_err();
    assert_eq!((error.kind(), error.detail("limit")), (ErrorKind::Unsupported, Some("max_uniform_size")));
    assert!(error.to_string().starts_with("dispatch `node`: binding 0: 260 bytes of `large`"), "{error}");
    let error = record(readers, &[Binding::whole(large), part(0, 4)]).unwrap_err();
    assert_eq!((error.detail("limit"), error.detail("asked")), (Some("max_binding_size"), Some("2048")));
    record(readers, &[part(0, 1024), part(0, 4)]).unwrap();
    record(readers, &[part(1024, 0), part(0, 4)]).unwrap();
    let error = record(pair, &[part(0, 4), part(256, 4)]).unwrap_err();
    assert!(error.to_string().contains("bindings 0 and 1 share the buffer `large`"), "{error}");
    let error = record(readers, &[part(4, 4), part(0, 4)]).unwrap_err();
    assert!(error.to_string().contains("offset 4 is no multiple of 256"), "{error}");
}

#[test]
fn lists_die_with_their_parts_and_grids_keep_the_limit() {
    let mut device = small();
    let buffer = device.create_buffer("words", 16).unwrap();
    let kernel = device.create_kernel(&desc(&[BindingKind::ReadWrite])).unwrap();
    let n = tapml_graph::Dim::symbol(tapml_graph::Symbol::N);
    let groups = [Extent::from_dim(n), Extent::from_dim(1u64), Extent::from_dim(1u64)];
    let bindings = vec![Binding::whole(buffer)];
    let list =
        device.record(&[Command::Dispatch { label: "node".into(), kernel, bindings, groups }]).unwrap();
    device.replay(list, &Symbols::np(65535, 0)).unwrap();
    let error = device.replay(list, &Symbols::np(65536, 0)).unwrap_err();
    assert_eq!((error.kind(), error.detail("limit")), (ErrorKind::Unsupported, Some("max_groups_per_dim")));
    assert!(
        device.replay(list, &Symbols::new()).unwrap_err().to_string().contains("symbol `n` is not bound")
    );
    device.destroy_kernel(kernel).unwrap();
    let error = device.replay(list, &Symbols::np(1, 0)).unwrap_err();
    assert!(error.to_string().contains("dispatch `node`: no kernel"), "{error}");
    device.destroy_list(list).unwrap();
    assert_eq!(device.destroy_list(list).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn memory_it_cannot_have_is_refused() {
    let limits = Limits { max_buffer_size: u64::MAX, ..Limits::WEBGPU };
    let mut device = NullDevice::new(limits, Features::default());
    let error = device.create_buffer("all", u64::MAX / 4).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(device.create_buffer("all", u64::MAX).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(device.memory(), (0, 0));
    assert!(device.take_findings().is_empty());
}
