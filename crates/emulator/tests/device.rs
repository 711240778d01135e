//! The device contract: buffers, lists, sizes, aliasing, symbols.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Arg, Run, bytes, read};
use tapml_device::{Binding, Command, Device, ErrorKind, Extent, KernelId, Symbols};
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_graph::Symbol;

const ADD_ONE: &str = "
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&y)) { y[id.x] = x[id.x] + 1u; }
}";

fn device() -> (Emulator, KernelId) {
    let mut device =
        Emulator::new(EmulatorOptions { threads: Some(2), ..EmulatorOptions::default() }).unwrap();
    let desc = Run::new(ADD_ONE, 4, vec![Arg::Read(vec![]), Arg::ReadWrite(vec![])]).desc();
    let kernel = device.create_kernel(&desc).unwrap();
    (device, kernel)
}

fn dispatch(kernel: KernelId, bindings: Vec<Binding>, groups: Extent) -> Command {
    Command::Dispatch {
        label: "add".into(),
        kernel,
        bindings,
        groups: [groups, Extent::from_dim(1_u64), Extent::from_dim(1_u64)],
    }
}

#[test]
fn buffers_are_zeroed_counted_and_checked() {
    let (mut device, _) = device();
    let buffer = device.create_buffer("b", 10).unwrap();
    assert_eq!(device.memory(), (12, 12));
    assert_eq!(read(&mut device, buffer, 3).unwrap(), [0; 3]);
    device.write(buffer, 4, &[1, 2, 3, 4, 5, 6]).unwrap();
    assert_eq!(read(&mut device, buffer, 3).unwrap(), [0, 0x0403_0201, 0x0605]);
    for (offset, len) in [(2, 4), (0, 3), (8, 8), (u64::MAX, 4), (12, 4)] {
        let error = device.write(buffer, offset, &vec![0; len]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{offset} {len}");
    }
    assert!(
        device.read(buffer, 8, &mut [0; 8]).is_err() && device.read(buffer, u64::MAX, &mut [0; 8]).is_err()
    );
    device.destroy_buffer(buffer).unwrap();
    assert_eq!(device.memory(), (0, 12));
    assert!(device.destroy_buffer(buffer).is_err() && device.write(buffer, 0, &[]).is_err());
    let huge = device.create_buffer("huge", u64::MAX).unwrap_err();
    assert_eq!((huge.kind(), huge.detail("limit")), (ErrorKind::Unsupported, Some("max_buffer_size")));
}

#[test]
fn lists_are_replayed_with_new_symbols() {
    let (mut device, kernel) = device();
    let x = device.create_buffer("x", 64).unwrap();
    let y = device.create_buffer("y", 64).unwrap();
    let z = device.create_buffer("z", 64).unwrap();
    device.write(x, 0, &bytes(&(0..16).collect::<Vec<_>>())).unwrap();
    let n = Extent::from_dim(Symbol::N);
    let bytes_of_n = Extent::from_dim(tapml_graph::Dim::symbol(Symbol::N).checked_mul(16).unwrap());
    let list = device
        .record(&[
            Command::Fill { buffer: y, word: 9 },
            dispatch(kernel, vec![Binding::whole(x), Binding::whole(y)], n),
            Command::Copy {
                src: y,
                src_offset: Extent::from_dim(0_u64),
                dst: z,
                dst_offset: Extent::from_dim(4_u64),
                len: bytes_of_n,
            },
        ])
        .unwrap();
    device.replay(list, &Symbols::np(1, 0)).unwrap();
    assert_eq!(read(&mut device, y, 6).unwrap(), [1, 2, 3, 4, 9, 9]);
    device.replay(list, &Symbols::np(3, 0)).unwrap();
    assert_eq!(read(&mut device, y, 13).unwrap()[11..], [12, 9]);
    assert_eq!(read(&mut device, z, 6).unwrap(), [0, 1, 2, 3, 4, 5]);
    device.replay(list, &Symbols::np(0, 0)).unwrap();
    assert_eq!(read(&mut device, y, 2).unwrap(), [9, 9]);
    assert!(device.replay(list, &Symbols::new()).is_err(), "an unbound symbol");
    let error = device.replay(list, &Symbols::np(70_000, 0)).unwrap_err();
    assert_eq!(error.detail("limit"), Some("max_groups_per_dim"), "{error}");
    device.destroy_kernel(kernel).unwrap();
    assert!(device.replay(list, &Symbols::np(1, 0)).is_err());
    device.destroy_list(list).unwrap();
    assert!(device.replay(list, &Symbols::np(1, 0)).is_err());
}

#[test]
fn bindings_are_checked_as_webgpu_does() {
    let (mut device, kernel) = device();
    let x = device.create_buffer("x", 1024).unwrap();
    let y = device.create_buffer("y", 1024).unwrap();
    let one = || Extent::from_dim(1_u64);
    let part = |offset, size| Binding { buffer: x, offset, size };
    let whole = Binding::whole;
    let mut refused = |bindings: Vec<Binding>, part: &str| {
        let error = device.record(&[dispatch(kernel, bindings, one())]).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    };
    refused(vec![whole(x)], "binds 1 buffers");
    refused(vec![part(4, 4), whole(y)], "multiple of 256");
    refused(vec![part(0, 6), whole(y)], "multiple of 256");
    refused(vec![part(768, 512), whole(y)], "do not fit");
    refused(vec![part(1024, 0), whole(y)], "at least 4");
    refused(vec![part(u64::MAX - 255, 512), whole(y)], "do not fit");
    refused(vec![whole(x), whole(x)], "writes to it");
    refused(vec![part(0, 256), part(512, 256)], "writes to it");
    device.record(&[dispatch(kernel, vec![part(256, 256), whole(y)], one())]).unwrap();
}

#[test]
fn two_ranges_of_a_buffer_may_be_written_if_they_do_not_overlap() {
    let text = "
        @group(0) @binding(0) var<storage, read_write> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(4)
        fn main(@builtin(local_invocation_index) i: u32) { y[i] = x[i] + 1u; x[i] = 7u; }";
    let run = Run::new(text, 4, vec![Arg::ReadWrite(vec![]), Arg::ReadWrite(vec![])]);
    let mut device = Emulator::new(run.options).unwrap();
    let kernel = device.create_kernel(&run.desc()).unwrap();
    let b = device.create_buffer("b", 512).unwrap();
    let ranges =
        vec![Binding { buffer: b, offset: 0, size: 16 }, Binding { buffer: b, offset: 256, size: 16 }];
    let list = device.record(&[dispatch(kernel, ranges, Extent::from_dim(1_u64))]).unwrap();
    device.replay(list, &Symbols::new()).unwrap();
    let words = read(&mut device, b, 68).unwrap();
    assert_eq!((&words[..5], &words[64..]), (&[7, 7, 7, 7, 0][..], &[1, 1, 1, 1][..]));
    let overlap =
        vec![Binding { buffer: b, offset: 0, size: 260 }, Binding { buffer: b, offset: 256, size: 16 }];
    assert!(device.record(&[dispatch(kernel, overlap, Extent::from_dim(1_u64))]).is_err());
}

#[test]
fn bindings_over_the_limit_name_it() {
    let mut device = Emulator::new(EmulatorOptions::default()).unwrap();
    let run = Run::new(ADD_ONE, 4, vec![Arg::Read(vec![]), Arg::ReadWrite(vec![])]);
    let kernel = device.create_kernel(&run.desc()).unwrap();
    let x = device.create_buffer("x", (128 << 20) + 4).unwrap();
    let y = device.create_buffer("y", 16).unwrap();
    let error = device
        .record(&[dispatch(kernel, vec![Binding::whole(x), Binding::whole(y)], Extent::from_dim(1_u64))])
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.detail("limit")),
        (ErrorKind::Unsupported, Some("max_binding_size")),
        "{error}"
    );
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let run = |threads: usize| {
        let words: Vec<u32> = (0..4000_u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
        let mut run =
            Run::new(ADD_ONE, 4, vec![Arg::Read(words), Arg::ReadWrite(vec![0; 4000])]).groups(1000);
        run.options.threads = Some(threads);
        run.output(1)
    };
    let one = run(1);
    assert_eq!(one[1], 2_654_435_762);
    assert_eq!(one, run(2));
    assert_eq!(one, run(7));
}
