//! NVRTC, the compiler of CUDA C++ in a library: where it is found, and from text to machine code.
//!
//! Order of the search: the file that `TAPML_NVRTC` names, the system's loader, installed toolkits, Python
//! packages. A named file that does not load is an error, not a reason to search on.
#![allow(unsafe_code)]

use crate::error::check;
use crate::sys::{CuObject, CuStatus, Nvrtc};
use libloading::Library;
use std::ffi::{CString, OsStr, c_int};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::sync::OnceLock;
use tapml_graph::{Error, ErrorKind, Result};

/// For every way in which no compiler is found.
const HINT: &str = "install CUDA's compiler library, for example by `pip install nvidia-cuda-nvrtc`, or let TAPML_NVRTC \
                    name the file `libnvrtc.so`";

/// Why a text was not compiled.
pub(crate) enum Refusal {
    /// The compiler's messages.
    Log(String),
    /// A call of the library failed.
    Status(CuStatus),
}

/// The compiler.
pub(crate) struct Compiler {
    /// The library's functions; it stays loaded.
    api: Nvrtc,
    /// Major and minor release.
    pub(crate) version: (i32, i32),
    /// The architectures that it makes machine code for: 80, 90, …
    architectures: Vec<i32>,
}

/// The compiler, loaded once in a process. `driver` is the driver's major release, whose compiler is preferred.
pub(crate) fn compiler(driver: i32) -> Result<&'static Compiler> {
    static LOADED: OnceLock<std::result::Result<Compiler, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| load(driver));
    loaded.as_ref().map_err(|why| {
        Error::new(ErrorKind::Unavailable, format!("no compiler of CUDA kernels (NVRTC) found: {why}"))
            .with_hint(HINT)
    })
}

/// Tries all places; the last failure is told.
fn load(driver: i32) -> std::result::Result<Compiler, String> {
    if let Some(path) = std::env::var_os("TAPML_NVRTC").filter(|path| !path.is_empty()) {
        return open(&path).map_err(|why| format!("TAPML_NVRTC: {why}"));
    }
    let mut why = "the loader knows none".to_string();
    for name in names(driver) {
        match open(OsStr::new(&name)) {
            Ok(compiler) => return Ok(compiler),
            Err(error) => why = error,
        }
    }
    let installed = toolkits().into_iter().flat_map(|folder| libraries(&folder, driver));
    let found = installed.chain(packages(driver).flat_map(|folder| libraries(&folder, driver)));
    for path in found {
        match open(path.as_os_str()) {
            Ok(compiler) => return Ok(compiler),
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// Names that the system's loader may know, the driver's own release first.
fn names(driver: i32) -> Vec<String> {
    let mut majors = vec![13, 12];
    majors.sort_by_key(|&major| (major != driver, -major));
    let name = |major: i32| {
        if cfg!(windows) { format!("nvrtc64_{major}0_0.dll") } else { format!("libnvrtc.so.{major}") }
    };
    // Without a version last: it may be of any release.
    let mut names: Vec<String> = majors.into_iter().map(name).collect();
    if !cfg!(windows) {
        names.push("libnvrtc.so".into());
    }
    names
}

/// Folders with libraries of an installed toolkit.
fn toolkits() -> Vec<PathBuf> {
    let named = ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let roots = named.chain([PathBuf::from("/usr/local/cuda")]);
    roots.flat_map(|root| ["lib64", "lib", "bin", "bin/x64"].map(|lib| root.join(lib))).collect()
}

/// Folders with libraries of Python packages: of the virtual environment, then of the Python on the path.
fn packages(driver: i32) -> impl Iterator<Item = PathBuf> {
    let environment = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from).into_iter();
    let environment = environment.flat_map(|root| {
        let versions = folders(&root.join("lib")).into_iter().map(|version| version.join("site-packages"));
        versions.chain([root.join("Lib").join("site-packages")]).collect::<Vec<_>>()
    });
    // Starting Python takes a while: only if all else failed.
    let default = std::iter::once_with(python_path).flatten();
    environment.chain(default).flat_map(move |site| {
        let mut kits = folders(&site.join("nvidia"));
        kits.sort_by_key(|kit| !kit.ends_with(format!("cu{driver}")));
        kits.into_iter().flat_map(|kit| ["lib", "bin", "bin/x86_64"].map(|lib| kit.join(lib)))
    })
}

/// The folders in which the Python on the path looks for packages.
fn python_path() -> Vec<PathBuf> {
    let python = if cfg!(windows) { "python" } else { "python3" };
    let script = "import sys; print('\\n'.join(sys.path))";
    let told = Command::new(python).args(["-c", script]).output();
    let told = told.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    told.lines().filter(|line| !line.is_empty()).map(PathBuf::from).collect()
}

/// The folders in a folder, sorted.
fn folders(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// The compiler's files in a folder.
fn libraries(folder: &Path, driver: i32) -> Vec<PathBuf> {
    names(driver).into_iter().map(|name| folder.join(name)).filter(|path| path.is_file()).collect()
}

/// Loads a library and asks what it can do.
fn open(name: &OsStr) -> std::result::Result<Compiler, String> {
    // SAFETY: loading the compiler's library runs its initialisers only.
    let library = unsafe { Library::new(name) };
    let api = library.and_then(Nvrtc::from).map_err(|e| e.to_string())?;
    let (mut major, mut minor, mut count) = (0, 0, 0);
    // SAFETY: gives numbers.
    check(unsafe { (api.nvrtcVersion)(&mut major, &mut minor) }).map_err(|e| format!("{e:?}"))?;
    // SAFETY: gives a number.
    check(unsafe { (api.nvrtcGetNumSupportedArchs)(&mut count) }).map_err(|e| format!("{e:?}"))?;
    let mut architectures = vec![0; usize::try_from(count).unwrap_or(0).min(256)];
    // SAFETY: room for as many as were said.
    check(unsafe { (api.nvrtcGetSupportedArchs)(architectures.as_mut_ptr()) })
        .map_err(|e| format!("{e:?}"))?;
    Ok(Compiler { api, version: (major, minor), architectures })
}

impl Compiler {
    /// What to compile for: the machine code of a device of this capability (90 on Hopper, whose own instructions are
    /// taken along), or the driver's intermediate code if the device is newer than the compiler.
    pub(crate) fn architecture(&self, capability: u32) -> String {
        let known = self.architectures.iter().any(|&a| i64::from(a) == i64::from(capability));
        let newest = self.architectures.iter().max().copied().unwrap_or(80);
        if !known {
            format!("compute_{newest}")
        } else if capability >= 90 {
            // From Hopper on, each chip has instructions that no later one has to have.
            format!("sm_{capability}a")
        } else {
            format!("sm_{capability}")
        }
    }

    /// Compiles a text: machine code, or intermediate code that ends with a zero.
    pub(crate) fn compile(&self, text: &str, options: &[String]) -> std::result::Result<Vec<u8>, Refusal> {
        let program = NvrtcProgram::new(&self.api, text)?;
        let options: Vec<CString> =
            options.iter().map(|o| CString::new(o.as_str()).unwrap_or_default()).collect();
        let starts: Vec<_> = options.iter().map(|o| o.as_ptr()).collect();
        // SAFETY: so many options, each ending with a zero.
        let status =
            unsafe { (self.api.nvrtcCompileProgram)(program.raw, starts.len() as c_int, starts.as_ptr()) };
        if status != 0 {
            return Err(match program.log() {
                log if log.is_empty() => Refusal::Status(status),
                log => Refusal::Log(log),
            });
        }
        // Intermediate code is compiled by the driver when it is loaded.
        if options.iter().any(|o| o.to_string_lossy().contains("=compute_")) {
            program.bytes(self.api.nvrtcGetPTXSize, self.api.nvrtcGetPTX)
        } else {
            program.bytes(self.api.nvrtcGetCUBINSize, self.api.nvrtcGetCUBIN)
        }
    }
}

/// Asks for a length, terminator included.
type SizeFunction = unsafe extern "system" fn(CuObject, *mut usize) -> CuStatus;
/// Fills a buffer of that length.
type Take = unsafe extern "system" fn(CuObject, *mut std::ffi::c_char) -> CuStatus;

/// A text and what was made of it.
struct NvrtcProgram<'a> {
    /// Whose program it is.
    api: &'a Nvrtc,
    /// Owned.
    raw: CuObject,
}

impl<'a> NvrtcProgram<'a> {
    /// # Errors
    /// If the text holds a zero byte or memory does not suffice.
    fn new(api: &'a Nvrtc, text: &str) -> std::result::Result<NvrtcProgram<'a>, Refusal> {
        let text = CString::new(text).map_err(|_| Refusal::Log("the text holds a zero byte".into()))?;
        let mut raw = ptr::null_mut();
        // SAFETY: text and name end with a zero; no headers are handed over.
        let status = unsafe {
            let create = api.nvrtcCreateProgram;
            create(&mut raw, text.as_ptr(), c"kernel.cu".as_ptr(), 0, ptr::null(), ptr::null())
        };
        if status == 0 { Ok(NvrtcProgram { api, raw }) } else { Err(Refusal::Status(status)) }
    }

    /// The compiler's messages; empty if there are none.
    fn log(&self) -> String {
        let bytes = self.bytes(self.api.nvrtcGetProgramLogSize, self.api.nvrtcGetProgramLog);
        let bytes = bytes.unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_matches(['\0', '\n', ' ']).to_string()
    }

    /// A length, then as many bytes.
    fn bytes(&self, size: SizeFunction, take: Take) -> std::result::Result<Vec<u8>, Refusal> {
        let mut len = 0;
        // SAFETY: gives a number.
        let status = unsafe { size(self.raw, &mut len) };
        if status != 0 {
            return Err(Refusal::Status(status));
        }
        let mut bytes = vec![0u8; len];
        // SAFETY: room for as many bytes as were said.
        let status = unsafe { take(self.raw, bytes.as_mut_ptr().cast()) };
        if status == 0 { Ok(bytes) } else { Err(Refusal::Status(status)) }
    }
}

impl Drop for NvrtcProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: owned and destroyed once.
        unsafe { (self.api.nvrtcDestroyProgram)(&mut self.raw) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_own_release_comes_first() {
        assert!(names(13)[0].contains("13"));
        assert!(names(12)[0].contains("12"));
        assert!(names(14)[0].contains("13"));
    }
}
