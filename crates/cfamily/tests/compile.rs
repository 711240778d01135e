//! Every built-in kernel and one of everything else, compiled by the makers' compilers where they are: NVRTC to a cubin,
//! clang to AMD's code objects. Nothing runs.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use tapml_cfamily::{Dialect, PrintOptions, print};
use tapml_device::{KernelDesc, Language};
use tapml_kernels::{KERNELS, KernelRow, Needs};
use tapml_testing::Nvrtc;

/// Kernels in one text for a compiler: starting it takes longer than compiling one.
const AT_ONCE: usize = 16;

/// A text and what it holds.
struct Unit {
    names: Vec<String>,
    text: String,
}

impl Unit {
    /// Each kernel in a name space of its own, under a name of its own.
    fn from_kernels(kernels: &[KernelDesc], dialect: Dialect) -> Unit {
        let mut unit = Unit { names: Vec::new(), text: String::new() };
        for (at, desc) in kernels.iter().enumerate() {
            let printed = print(desc, &common::device(), PrintOptions::new(dialect))
                .unwrap_or_else(|e| panic!("{e}\n{:?}", e.details()));
            let (name, own) = (format!(") {}(", printed.name), format!(") kernel_{at}("));
            assert!(printed.text.contains(&name), "{}", printed.text);
            let text = printed.text.replace(&name, &own);
            if dialect == Dialect::Hip {
                // The prelude defines them where nobody else does.
                unit.text.push_str("#undef __global__\n#undef __device__\n#undef __shared__\n#undef M\n");
            }
            unit.text.push_str(&format!("namespace n{at} {{\n{text}\n}}\n"));
            unit.names.push(format!("n{at} {}", desc.name));
        }
        unit
    }
}

/// Has every kernel compiled for every target; fails with what the compiler says first.
fn compile_all(
    dialect: Dialect,
    targets: &[&str],
    compile: impl Fn(&str, &str) -> Result<(), String> + Sync,
) {
    let kernels: Vec<KernelDesc> = common::all().into_iter().chain([common::features()]).collect();
    let units: Vec<Unit> = kernels.chunks(AT_ONCE).map(|part| Unit::from_kernels(part, dialect)).collect();
    let tasks: Vec<(&Unit, &str)> =
        units.iter().flat_map(|unit| targets.iter().map(move |&t| (unit, t))).collect();
    println!("{} kernels for {}", kernels.len(), targets.join(", "));
    let (next, compile) = (AtomicUsize::new(0), &compile);
    let worker = || {
        while let Some((unit, target)) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(log) = compile(&unit.text, target) {
                panic!("{target}, {}:\n{log}", unit.names.join(", "));
            }
        }
    };
    std::thread::scope(|scope| {
        (0..2).map(|_| scope.spawn(worker)).collect::<Vec<_>>().into_iter().for_each(|w| w.join().unwrap());
    });
}

/// The log if NVRTC refuses a text.
fn cubin(nvrtc: &Nvrtc, text: &str, arch: &str) -> Result<(), String> {
    nvrtc.compile(text, &[&format!("--gpu-architecture={arch}"), "--fmad=false"])
}

#[test]
fn nvrtc_takes_every_kernel() {
    let Some(library) = Nvrtc::open() else {
        return tapml_testing::skip("nvrtc", "no NVRTC (TAPML_NVRTC names it)");
    };
    compile_all(Dialect::Cuda, &["sm_80", "sm_90"], |text, target| cubin(&library, text, target));
}

/// The text of a kernel in CUDA C++ with its constants, as the backend puts it together.
fn cuda_text(desc: &KernelDesc) -> String {
    let constant = |(name, value): &(String, f64)| format!("#define {name} {value}\n");
    let constants: String = desc.constants.iter().map(constant).collect();
    format!("{}{constants}{}", desc.source.prelude, desc.source.text)
}

#[test]
fn nvrtc_takes_every_kernel_in_cuda() {
    let Some(library) = Nvrtc::open() else {
        return tapml_testing::skip("nvrtc", "no NVRTC (TAPML_NVRTC names it)");
    };
    let (mut texts, mut names) = (BTreeSet::new(), BTreeSet::new());
    let hopper = common::hopper();
    for desc in common::of_samples(&hopper).into_iter().chain(common::of_sparse(&hopper)) {
        if desc.source.language == Language::Cuda && texts.insert(cuda_text(&desc)) {
            names.insert(desc.name);
        }
    }
    for text in &texts {
        if let Err(log) = cubin(&library, text, "sm_90a") {
            panic!("{log}\n{}", &text[..text.len().min(2000)]);
        }
    }
    let served = |row: &&KernelRow| row.needs != Needs::NOTHING && row.needs.missing(&hopper).is_none();
    let expected = KERNELS.iter().filter(served).map(|row| row.name);
    let expected: BTreeSet<&str> =
        expected.filter(|name| name.contains("_cuda") || name.contains("_hopper")).collect();
    let found: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let missing: Vec<&&str> = expected.difference(&found).collect();
    assert!(missing.is_empty(), "no sample takes {missing:?}");
}

/// What clang says to a text for an AMD processor.
fn code_object(text: &str, arch: &str) -> std::io::Result<Output> {
    let flags =
        ["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "-O1"];
    let mut child = Command::new("clang++-19")
        .args(flags)
        .args([&format!("--offload-arch={arch}"), "-c", "-o", "/dev/null", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().unwrap().write_all(text.as_bytes())?;
    child.wait_with_output()
}

#[test]
fn clang_takes_every_kernel_for_amd() {
    if let Err(error) = Command::new("clang++-19").arg("--version").output() {
        return tapml_testing::skip("clang-19", &error.to_string());
    }
    compile_all(Dialect::Hip, &["gfx1100", "gfx942", "gfx1201"], |text, target| {
        let output = code_object(text, target).unwrap();
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    });
}
