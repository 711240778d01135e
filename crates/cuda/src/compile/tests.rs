//! Kernels through NVRTC, where it is installed: for the architectures of several generations, and what is said of errors.

use super::*;
use crate::{adapter, nvrtc, stub};
use tapml_device::{BindingKind, Source};

/// What compiles, with a folder for its cache.
fn front(capability: u32) -> Option<(tempfile::TempDir, CudaFront, Arc<Driver>, DeviceInfo)> {
    let compiler = match nvrtc::compiler(13) {
        Ok(compiler) => Some(compiler),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            tapml_testing::skip("nvrtc", error.message());
            return None;
        }
    };
    let options = CudaOptions::default();
    let opened = adapter::open_on(&stub::API, 0, 13_000, options).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::in_folder(folder.path().into());
    Some((folder, CudaFront { compiler, cache, capability, options }, opened.driver, opened.info))
}

fn desc(language: Language, text: &str) -> KernelDesc {
    let (file, prelude) = match language {
        Language::Wgsl => ("kernel.wgsl", "alias act = f32;\n"),
        Language::Cuda => ("kernel.cu", "typedef float act;\n"),
    };
    KernelDesc {
        name: "op/variant".into(),
        source: Source { language, file: file.into(), prelude: prelude.into(), text: text.into() },
        entry: "main_kernel".into(),
        constants: vec![("K".into(), 96.0), ("SCALE".into(), -0.125)],
        bindings: vec![BindingKind::Read, BindingKind::ReadWrite],
        workgroup: [64, 1, 1],
        workgroup_memory: 0,
        needs_f16: false,
        needs_subgroups: false,
        dependent_launch: false,
    }
}

const WGSL: &str = "override K: u32;
override SCALE: f32;
@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read_write> y: array<act>;
@compute @workgroup_size(64)
fn main_kernel(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < K { y[id.x] = x[id.x] * SCALE; }
}
";

const CUDA: &str = "extern __shared__ act row[];
extern \"C\" __global__ void __launch_bounds__(64) main_kernel(const act *x, act *y) {
    row[threadIdx.x] = x[threadIdx.x % K];
    asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");
    y[threadIdx.x] = row[threadIdx.x] * SCALE;
}
";

#[test]
fn both_languages_compile_and_are_kept() {
    for capability in [90, 100, 120] {
        let Some((_folder, front, driver, info)) = front(capability) else { return };
        for (language, text) in [(Language::Wgsl, WGSL), (Language::Cuda, CUDA)] {
            let mut desc = desc(language, text);
            if language == Language::Cuda {
                desc.workgroup_memory = 100 << 10;
            }
            let compiled = front.compile(&driver, &desc, &info).unwrap();
            let arguments = if language == Language::Wgsl { 4 } else { 2 };
            assert_eq!((compiled.args.len(), compiled.shared), (arguments, desc.workgroup_memory));
            let made = front.text(&desc, &info).unwrap();
            assert!(made.text.contains("SCALE") || language == Language::Wgsl, "{}", made.text);
            assert_eq!(front.image(&desc, &made).unwrap()[..4], *b"\x7fELF");
        }
    }
}

#[test]
fn a_device_that_is_newer_than_the_compiler_takes_intermediate_code() {
    let Some((_folder, front, _, info)) = front(990) else { return };
    let desc = desc(Language::Wgsl, WGSL);
    let image = front.image(&desc, &front.text(&desc, &info).unwrap()).unwrap();
    assert!(String::from_utf8_lossy(&image).contains(".version"), "PTX");
    assert_eq!(image.last(), Some(&0));
}

#[test]
fn errors_point_at_the_kernels_own_line() {
    let Some((_folder, front, driver, info)) = front(90) else { return };
    let error = |desc: &KernelDesc| match front.compile(&driver, desc, &info) {
        Ok(_) => panic!("it compiles"),
        Err(error) => error,
    };
    let wrong = CUDA.replace("row[threadIdx.x] * SCALE", "row[threadIdx.x] * SCALD");
    let told = error(&desc(Language::Cuda, &wrong));
    assert_eq!(
        (told.kind(), told.detail("line"), told.detail("kernel")),
        (ErrorKind::Compile, Some("5"), Some("op/variant"))
    );
    assert!(told.to_string().contains("kernel.cu:5:41: identifier \"SCALD\" is undefined"), "{told}");
    assert_eq!((told.detail("file"), told.detail("column")), (Some("kernel.cu"), Some("41")));
    assert!(told.to_string().contains("`y[threadIdx.x] = row[threadIdx.x] * SCALD;`"), "{told}");
    let told = error(&desc(Language::Wgsl, &WGSL.replace("* SCALE", "* SCALD")));
    assert_eq!((told.kind(), told.detail("line")), (ErrorKind::Compile, Some("7")), "{told}");
    let mut absent = desc(Language::Cuda, CUDA);
    absent.entry = "absent".into();
    assert!(error(&absent).to_string().contains("no entry point `absent`"));
    let mut odd = desc(Language::Cuda, CUDA);
    odd.constants[0].0 = "K 1\n#include".into();
    assert_eq!(error(&odd).kind(), ErrorKind::InvalidInput);
    // The stub says that a kernel can be launched with 512 threads.
    let mut wide = desc(Language::Cuda, CUDA);
    wide.workgroup = [1024, 1, 1];
    assert_eq!(error(&wide).detail("limit"), Some("max_invocations"));
    let mut large = desc(Language::Cuda, CUDA);
    large.workgroup_memory = info.limits.max_workgroup_memory + 4;
    assert_eq!(error(&large).detail("limit"), Some("max_workgroup_memory"));
}

#[test]
fn a_column_is_that_of_the_caret_in_the_files_own_line() {
    let message = "mine.cu(5): error: identifier \"b\" is undefined";
    let log = format!("note\n{message}\n      y = b;\n          ^\n\n1 error detected\n");
    assert_eq!(column(&log, message, "\t\ty = b;"), Some(7));
    assert_eq!(column(&log, message, "é  y = b;"), Some(8), "columns count characters");
    assert_eq!(column(&log, message, "another line"), None);
    assert_eq!(column(message, message, "y = b;"), None);
}

#[test]
fn constants_are_written_as_cpp_reads_them() {
    let text = [4096.0, -3.0, 0.1, -0.125, 1e-6, 0.0, f64::INFINITY].map(number);
    assert_eq!(text, ["4096", "(-3)", "1e-1", "(-1.25e-1)", "1e-6", "0", "(1.0 / 0.0)"]);
}
