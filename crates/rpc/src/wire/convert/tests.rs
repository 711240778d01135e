//! What goes over the wire and back is what it was.

use super::*;
use tapml_device::null::NullDevice;
use tapml_device::{Binding, Command, Device, Features, Finding, FindingKind, Limits, Source};

fn dim(text: &str) -> Dim {
    text.parse().unwrap()
}

fn commands() -> Vec<Command> {
    let binding = |buffer, offset| Binding { buffer: BufferId(buffer), offset, size: 512 };
    vec![
        Command::Dispatch {
            label: "layers.0.mlp".into(),
            kernel: KernelId(4),
            bindings: vec![binding(1, 0), binding(2, 256)],
            groups: [
                Extent::ceil_div(dim("320*n+2*p+7"), 64),
                Extent::from_dim(dim("n")),
                Extent::from_dim(dim("1")),
            ],
        },
        Command::Copy {
            src: BufferId(1),
            src_offset: Extent::from_dim(dim("4*p")),
            dst: BufferId(2),
            dst_offset: Extent::from_dim(dim("0")),
            len: Extent::from_dim(dim("4*n")),
        },
        Command::Fill { buffer: BufferId(3), word: 0x7fc0_0001 },
    ]
}

#[test]
fn commands_round_trip() {
    for command in commands() {
        let there = command_to_wire(&command).unwrap();
        let buffer = |id| Ok(BufferId(u64::from(id)));
        let kernel = |id| Ok(KernelId(u64::from(id)));
        assert_eq!(command_from_wire(&there, buffer, kernel).unwrap(), command);
    }
    let far = Command::Fill { buffer: BufferId(1 << 40), word: 0 };
    assert!(command_to_wire(&far).is_err());
}

#[test]
fn infos_kernels_and_symbols_round_trip() {
    let features = Features {
        f16: true,
        subgroups: Some((8, 32)),
        cuda: Some(90),
        matrices: true,
        device_barriers: true,
        processors: Some(132),
    };
    let device = NullDevice::new(Limits::WEBGPU, features.clone());
    assert_eq!(info_from_wire(&info_to_wire(device.info())).unwrap(), *device.info());
    every_feature_travels(&features);
    let source = |text: &str| Source {
        language: device::Language::Wgsl,
        file: "k.wgsl".into(),
        prelude: "alias T = f32;\n".into(),
        text: text.into(),
    };
    let desc = KernelDesc {
        name: "linear/portable".into(),
        source: source("fn main() {}"),
        entry: "main".into(),
        constants: vec![("K".into(), -0.1), ("N".into(), 3.0)],
        bindings: vec![
            device::BindingKind::Uniform,
            device::BindingKind::Read,
            device::BindingKind::ReadWrite,
        ],
        workgroup: [8, 4, 2],
        workgroup_memory: 1024,
        needs_f16: true,
        needs_subgroups: false,
        dependent_launch: true,
    };
    assert_eq!(kernel_from_wire(kernel_to_wire(5, &desc)).unwrap(), desc);
    let mut cuda = desc.clone();
    cuda.source.language = device::Language::Cuda;
    assert_eq!(kernel_from_wire(kernel_to_wire(6, &cuda)).unwrap(), cuda);
    let unknown = wire::CreateKernel { language: 7, ..kernel_to_wire(5, &desc) };
    assert_eq!(kernel_from_wire(unknown).unwrap_err().kind(), ErrorKind::Unsupported);
    let symbols = Symbols::np(3, 1 << 40);
    assert_eq!(symbols_from_wire(&symbols_to_wire(&symbols).unwrap()).unwrap(), symbols);
    assert!(symbols_to_wire(&Symbols::np(1 << 60, 0)).is_err());
}

/// Each of these features, all of which are there, goes over the wire alone and with the others.
fn every_feature_travels(all: &Features) {
    let there = features_to_wire(all);
    let names = serde_json::to_value(all).unwrap();
    assert_eq!(there.len(), names.as_object().unwrap().len(), "{there:?}");
    for feature in &there {
        let one = features_from_wire(std::slice::from_ref(feature)).unwrap();
        assert!(one != Features::default(), "{feature:?}");
        assert_eq!(features_to_wire(&one), std::slice::from_ref(feature));
        let others: Vec<_> = there.iter().filter(|other| *other != feature).cloned().collect();
        assert!(features_from_wire(&others).unwrap() != *all, "{feature:?}");
    }
    assert_eq!(features_to_wire(&Features::default()), []);
    // Names of later releases are passed over, values that cannot be are told.
    let named = |name: &str, value: &str| wire::Feature { name: name.into(), value: value.into() };
    let later = [there.clone(), vec![named("quantum", "[1]")]].concat();
    assert_eq!(features_from_wire(&later).unwrap(), *all);
    for (name, value) in [("f16", "7"), ("subgroups", "[4]"), ("cuda", "-1"), ("matrices", "yes")] {
        let error = features_from_wire(&[named(name, value)]).unwrap_err();
        assert!(error.to_string().contains(&format!("`{name}` is `{value}`")), "{error}");
    }
}

/// An agent from before features had names told them by fields 6 to 8 and 10 to 12.
#[test]
fn an_agent_that_tells_features_otherwise_is_read_without_them() {
    use prost::Message;
    let device = NullDevice::new(Limits::WEBGPU, Features::default());
    let mut bytes = info_to_wire(device.info()).encode_to_vec();
    for (field, value) in [(6, 1), (7, 4), (8, 32), (10, 90), (11, 1), (12, 132)] {
        prost::encoding::uint32::encode(field, &value, &mut bytes);
    }
    let read = wire::DeviceInfo::decode(bytes.as_slice()).unwrap();
    assert_eq!(info_from_wire(&read).unwrap(), *device.info());
}

#[test]
fn errors_keep_kind_hint_and_details() {
    for (kind, _) in ERRORS {
        let error = Error::new(kind, "what").context("where").with_hint("do").with_detail("line", "7");
        let back = error_from_wire(error_to_wire(&error));
        assert_eq!((back.kind(), back.to_string()), (kind, error.to_string()));
        assert_eq!((back.hint(), back.details()), (error.hint(), error.details()));
    }
}

#[test]
fn findings_round_trip_and_unknown_kinds_are_told() {
    for (kind, name) in KINDS {
        let finding = Finding {
            kind,
            kernel: "k".into(),
            label: "l".into(),
            file: "f".into(),
            line: 1,
            column: 2,
            source: "s".into(),
            message: "m".into(),
            workgroup: [3, 4, 5],
            invocation: 6,
            count: 7,
        };
        let there = finding_to_wire(finding.clone());
        assert_eq!((there.kind.as_str(), finding_from_wire(there.clone()).unwrap()), (name, finding));
        assert!(finding_from_wire(wire::Finding { kind: "new".into(), ..there }).is_err());
    }
    assert_ne!(FindingKind::NonFinite.name(), "");
}
