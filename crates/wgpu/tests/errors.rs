//! What a caller sees when something is wrong: kinds, places in the source, limits, hints; and that a device survives.
#![allow(clippy::unwrap_used)]

mod common;

use common::vulkan as device;
use tapml_device::{
    Binding, BindingKind, BufferId, Command, Device, ErrorKind, Extent, KernelDesc, KernelId, Language,
    Source,
};
use tapml_graph::{Error, Result, Symbols};
use tapml_wgpu::{WgpuDevice, adapters};

fn desc(bindings: &[BindingKind], text: &str) -> KernelDesc {
    let prelude = "alias Word = u32;\n".to_string();
    KernelDesc {
        name: "test/kernel".into(),
        source: Source { language: Language::Wgsl, file: "kernel.wgsl".into(), prelude, text: text.into() },
        entry: "main".into(),
        constants: Vec::new(),
        bindings: bindings.to_vec(),
        workgroup: [1, 1, 1],
        workgroup_memory: 0,
        needs_f16: false,
        needs_subgroups: false,
        dependent_launch: false,
    }
}

const STORE: &str = "@group(0) @binding(0) var<storage, read_write> out: array<Word>;\n\
    @compute @workgroup_size(1)\nfn main() { out[0] = 42u; }\n";

fn run(device: &mut WgpuDevice, kernel: KernelId, bindings: Vec<Binding>) -> Result<()> {
    let groups = [Extent::from_dim(1u64), Extent::from_dim(1u64), Extent::from_dim(1u64)];
    let list = device.record(&[Command::Dispatch { label: "node 7".into(), kernel, bindings, groups }])?;
    device.replay(list, &Symbols::new())?;
    device.destroy_list(list)
}

/// Checks that the device still computes.
fn works(device: &mut WgpuDevice) {
    let kernel = device.create_kernel(&desc(&[BindingKind::ReadWrite], STORE)).unwrap();
    let out = device.create_buffer("out", 4).unwrap();
    run(device, kernel, vec![Binding::whole(out)]).unwrap();
    let mut bytes = [0; 4];
    device.read(out, 0, &mut bytes).unwrap();
    assert_eq!(bytes, 42u32.to_le_bytes());
}

fn refusal_error(device: &mut WgpuDevice, desc: &KernelDesc) -> Error {
    let error = device.create_kernel(desc).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Compile, "{error}");
    assert_eq!(error.detail("kernel"), Some("test/kernel"), "{error}");
    assert!(error.detail("log").is_some_and(|l| !l.is_empty()), "{error}");
    error
}

#[test]
fn compile_errors_point_into_the_file() {
    let Some(mut device) = device("") else { return };
    let rows = [
        (
            "@compute @workgroup_size(1)\nfn main() {\n let x = 1u +;\n}\n",
            "3",
            "14",
            "let x = 1u +;",
            "expected expression",
        ),
        (
            "fn main() {\n    let v = vec2<f32>(1.0, 2.0);\n    let x = v.z;\n}\n",
            "3",
            "15",
            "let x = v.z;",
            "accessor `z`",
        ),
        (
            "fn f(n: Word) -> Word {\n if n > 1u { return 1u; }\n}\n",
            "1",
            "1",
            "fn f(n: Word) -> Word {",
            "return",
        ),
        ("fn main() {\n let x = 1u;\n let y = x + 1.5f; }", "3", "10", "let y = x + 1.5f; }", "Add"),
    ];
    for (text, line, column, source, why) in rows {
        let error = refusal_error(&mut device, &desc(&[], text));
        assert_eq!(
            (error.detail("line"), error.detail("column")),
            (Some(line), Some(column)),
            "{}",
            error.detail("log").unwrap()
        );
        assert_eq!(error.detail("source"), Some(source));
        let place = format!("kernel `test/kernel` does not compile: kernel.wgsl:{line}:{column}: ");
        assert!(error.to_string().starts_with(&place), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    works(&mut device);
}

#[test]
fn columns_of_the_first_line_do_not_count_what_the_device_adds() {
    let Some(mut device) = device("") else { return };
    let mut kernel = desc(&[], "fn main() { let x = ; }");
    kernel.source.prelude.clear();
    kernel.source.text.insert_str(0, "enable f16;\n");
    let error = refusal_error(&mut device, &kernel);
    assert_eq!((error.detail("line"), error.detail("column")), (Some("2"), Some("21")), "{error}");
    kernel.source.text = "fn main() { let x = ; }".into();
    kernel.needs_f16 = device.info().features.f16;
    let error = refusal_error(&mut device, &kernel);
    assert_eq!((error.detail("line"), error.detail("column")), (Some("1"), Some("21")), "{error}");
}

#[test]
fn an_error_in_the_prelude_is_said_to_be_there() {
    let Some(mut device) = device("") else { return };
    let mut kernel = desc(&[], "fn main() {}");
    kernel.source.prelude = "alias Word = ;\n".into();
    let error = refusal_error(&mut device, &kernel);
    assert!(error.to_string().contains("kernel.wgsl (prelude):1:14: "), "{error}");
    assert_eq!(error.detail("line"), None);
}

#[test]
fn bindings_that_differ_from_the_source_name_the_declaration() {
    let Some(mut device) = device("") else { return };
    for kinds in [&[BindingKind::Uniform][..], &[BindingKind::Read], &[]] {
        let error = refusal_error(&mut device, &desc(kinds, STORE));
        assert_eq!(error.detail("line"), Some("1"), "{error}");
    }
    works(&mut device);
}

#[test]
fn a_panic_of_the_shader_translator_refuses_the_kernel_alone() {
    let Some(mut device) = device("") else { return };
    // wgpu 30 accepts a pointer to an array element as an argument and then panics while it writes SPIR-V.
    let text = "@group(0) @binding(0) var<storage, read_write> out: array<Word>;\n\
        fn set(p: ptr<function, Word>) { *p = 1u; }\n\
        @compute @workgroup_size(1)\n\
        fn main(@builtin(local_invocation_index) i: u32) { var t = array<Word, 4>(); set(&t[i]); out[0] = t[0]; }";
    refusal_error(&mut device, &desc(&[BindingKind::ReadWrite], text));
    works(&mut device);
}

#[test]
fn kernels_prepared_ahead_run_and_are_refused_as_others_are() {
    let Some(mut device) = device("") else { return };
    let good = desc(&[BindingKind::ReadWrite], STORE);
    let mut faulty = Vec::new();
    for text in ["fn main() { let x = ; }", "fn main() { let v = vec2<f32>(1.0); let x = v.z; }"] {
        faulty.push(desc(&[], &format!("@compute @workgroup_size(1)\n{text}\n")));
    }
    // A text that is fine, and a description that contradicts it.
    faulty.push(desc(&[BindingKind::Read], STORE));
    let told: Vec<String> = faulty.iter().map(|desc| refusal_error(&mut device, desc).to_string()).collect();
    let all: Vec<KernelDesc> = faulty.iter().chain([&good]).cloned().collect();
    device.prepare_kernels(&all);
    for (desc, told) in faulty.iter().zip(told) {
        assert_eq!(refusal_error(&mut device, desc).to_string(), told);
    }
    // With what was prepared, then without it.
    works(&mut device);
    works(&mut device);
}

#[test]
fn limits_say_what_was_asked_and_offered() {
    let Some(mut device) = device("profile=mobile") else { return };
    let limits = device.info().limits.clone();
    let error = device.create_buffer("huge", limits.max_buffer_size + 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.detail("offered"), Some(limits.max_buffer_size.to_string().as_str()));

    let kernel = device.create_kernel(&desc(&[BindingKind::ReadWrite], STORE)).unwrap();
    let large = device.create_buffer("large", limits.max_binding_size + 4).unwrap();
    let error = run(&mut device, kernel, vec![Binding::whole(large)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(error.detail("limit"), Some("max_binding_size"));
    assert!(error.to_string().starts_with("dispatch `node 7`: binding 0: buffer `large`"), "{error}");
    let part = Binding { buffer: large, offset: 0, size: limits.max_binding_size };
    run(&mut device, kernel, vec![part]).unwrap();
    works(&mut device);
}

#[test]
fn a_binding_shorter_than_its_struct_is_refused_at_recording() {
    let Some(mut device) = device("") else { return };
    let text = "struct Params { rows: u32, table: array<vec4<u32>, 4> }\n\
        @group(0) @binding(0) var<uniform> params: Params;\n\
        @group(0) @binding(1) var<storage, read_write> out: array<u32>;\n\
        @compute @workgroup_size(1)\nfn main() { out[0] = params.rows + params.table[3].w; }";
    let kernel = device.create_kernel(&desc(&[BindingKind::Uniform, BindingKind::ReadWrite], text)).unwrap();
    let params = device.create_buffer("params", 80).unwrap();
    let out = device.create_buffer("out", 4).unwrap();
    let short = vec![Binding { buffer: params, offset: 0, size: 16 }, Binding::whole(out)];
    let error = run(&mut device, kernel, short).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().starts_with("dispatch `node 7`: "), "{error}");
    run(&mut device, kernel, vec![Binding::whole(params), Binding::whole(out)]).unwrap();
    works(&mut device);
}

#[test]
fn bound_buffers_are_checked_with_their_names() {
    let Some(mut device) = device("") else { return };
    let kernel = device.create_kernel(&desc(&[BindingKind::ReadWrite], STORE)).unwrap();
    let words = device.create_buffer("words", 1024).unwrap();
    let past = Binding { buffer: words, offset: 512, size: 516 };
    let error = run(&mut device, kernel, vec![past]).unwrap_err();
    assert!(error.to_string().contains("buffer `words` of 1024 bytes"), "{error}");
    let error = run(&mut device, kernel, vec![Binding::whole(BufferId(999))]).unwrap_err();
    assert!(error.to_string().contains("no buffer 999"), "{error}");
    assert_eq!(error.detail("kernel"), Some("test/kernel"));
}

#[test]
fn after_a_loss_every_call_fails_and_tells_the_last_commands() {
    let Some(mut device) = device("") else { return };
    works(&mut device);
    let kernel = device.create_kernel(&desc(&[BindingKind::ReadWrite], STORE)).unwrap();
    let out = device.create_buffer("out", 4).unwrap();
    run(&mut device, kernel, vec![Binding::whole(out)]).unwrap();
    let list = device.record(&[]).unwrap();
    device.close();
    let results = [
        device.create_buffer("more", 4).map(|_| ()),
        device.write(out, 0, &[0; 4]),
        device.read(out, 0, &mut [0; 4]),
        device.create_kernel(&desc(&[BindingKind::ReadWrite], STORE)).map(|_| ()),
        device.record(&[]).map(|_| ()),
        device.replay(list, &Symbols::new()),
        device.wait(),
        device.destroy_list(list),
        device.destroy_kernel(kernel),
        device.destroy_buffer(out),
    ];
    for result in results {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        assert_eq!(error.detail("recent"), Some("node 7\nnode 7"), "{error}");
    }
}

#[test]
fn what_is_not_here_is_unavailable_with_advice() {
    assert_eq!(adapters("opencl").unwrap_err().kind(), ErrorKind::InvalidInput);
    let elsewhere = if cfg!(windows) { "metal" } else { "dx12" };
    let error = WgpuDevice::open(elsewhere, 0, "").map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("only, not on"), "{error}");
    if device("").is_some() {
        let error = WgpuDevice::open("vulkan", 99, "").map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.hint().unwrap().contains("vulkan:0 "), "{:?}", error.hint());
        let error = WgpuDevice::open("vulkan", 0, "colour=red").map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}

#[test]
fn without_a_driver_the_hint_says_what_to_install() {
    // The loader reads the variable once for a process, so this runs in another one, which comes back here.
    if std::env::var_os("TAPML_TEST_NO_DRIVER").is_some() {
        let error = adapters("vulkan").unwrap_err();
        println!("{} / {error} / {}", error.kind().name(), error.hint().unwrap());
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["without_a_driver_the_hint_says_what_to_install", "--exact", "--nocapture"])
        .env("TAPML_TEST_NO_DRIVER", "1")
        .env("VK_DRIVER_FILES", "/nonexistent.json")
        .env("VK_ICD_FILENAMES", "/nonexistent.json")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("unavailable / no vulkan adapter found / "), "{text}");
    assert!(text.contains("apt-get install mesa-vulkan-drivers"), "{text}");
}
