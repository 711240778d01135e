//! Every built-in kernel and one of everything else, compiled by the makers' compilers where they are: NVRTC to a cubin,
//! clang to AMD's code objects. Nothing runs.
#![allow(clippy::unwrap_used, unsafe_code)]

mod common;

use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_void};
use std::io::Write;
use std::process::{Command, Stdio};
use tapml_cfamily::{Dialect, Options, Printed, print};
use tapml_device::KernelDesc;

fn printed(desc: &KernelDesc, dialect: Dialect) -> Printed {
    print(desc, &common::device(), Options::new(dialect)).unwrap_or_else(|e| panic!("{e}\n{:?}", e.details()))
}

fn kernels() -> Vec<KernelDesc> {
    common::all().into_iter().chain([common::features()]).collect()
}

/// NVRTC: the library that `TAPML_NVRTC` names, or one that the system finds.
fn nvrtc() -> Option<Library> {
    let named = std::env::var("TAPML_NVRTC").ok();
    let names = named.into_iter().chain(["libnvrtc.so.13".to_string(), "libnvrtc.so.12".to_string()]);
    // SAFETY: loading NVRTC runs its initialisers only.
    names.into_iter().find_map(|name| unsafe { Library::new(name) }.ok())
}

type Create = unsafe extern "C" fn(
    *mut *mut c_void,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;

/// The log if NVRTC refuses a text.
fn cubin(library: &Library, text: &str, arch: &str) -> Result<(), String> {
    let text = CString::new(text).unwrap();
    let options =
        [CString::new(format!("--gpu-architecture={arch}")).unwrap(), CString::new("--fmad=false").unwrap()];
    let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
    let mut program = std::ptr::null_mut();
    // SAFETY: the types are those of `nvrtc.h`; all texts end with a zero, and the log has the size that is said.
    unsafe {
        let create = library.get::<Create>(b"nvrtcCreateProgram\0").unwrap();
        let compile = library.get::<unsafe extern "C" fn(*mut c_void, c_int, *const *const c_char) -> c_int>(
            b"nvrtcCompileProgram\0",
        );
        let size = library
            .get::<unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int>(b"nvrtcGetProgramLogSize\0");
        let log = library.get::<unsafe extern "C" fn(*mut c_void, *mut u8) -> c_int>(b"nvrtcGetProgramLog\0");
        let none = std::ptr::null();
        assert_eq!(create(&mut program, text.as_ptr(), c"kernel.cu".as_ptr(), 0, none, none), 0);
        let status = compile.unwrap()(program, options.len() as c_int, options.as_ptr());
        let mut bytes = 0;
        size.unwrap()(program, &mut bytes);
        let mut said = vec![0u8; bytes];
        log.unwrap()(program, said.as_mut_ptr());
        if status == 0 { Ok(()) } else { Err(String::from_utf8_lossy(&said).into_owned()) }
    }
}

#[test]
fn nvrtc_takes_every_kernel() {
    let Some(library) = nvrtc() else {
        return tapml_testing::skip("nvrtc", "no NVRTC (TAPML_NVRTC names it)");
    };
    for desc in kernels() {
        let printed = printed(&desc, Dialect::Cuda);
        if let Err(log) = cubin(&library, &printed.text, "sm_90") {
            panic!("{}:\n{log}\n{}", desc.name, printed.text);
        }
    }
    let features = printed(&common::features(), Dialect::Cuda);
    cubin(&library, &features.text, "sm_80").unwrap();
}

/// What clang says to a text for an AMD processor.
fn code_object(text: &str, arch: &str) -> std::io::Result<(bool, String)> {
    let flags =
        ["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "-O1"];
    let mut child = Command::new("clang++-19")
        .args(flags)
        .args([&format!("--offload-arch={arch}"), "-c", "-o", "/dev/null", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().unwrap().write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[test]
fn clang_takes_every_kernel_for_amd() {
    if let Err(error) = Command::new("clang++-19").arg("--version").output() {
        return tapml_testing::skip("clang-19", &error.to_string());
    }
    for desc in kernels() {
        let printed = printed(&desc, Dialect::Hip);
        let (fine, log) = code_object(&printed.text, "gfx1100").unwrap();
        assert!(fine, "{}:\n{log}\n{}", desc.name, printed.text);
    }
    for arch in ["gfx942", "gfx1201"] {
        let (fine, log) = code_object(&printed(&common::features(), Dialect::Hip).text, arch).unwrap();
        assert!(fine, "{arch}:\n{log}");
    }
}
