//! NVRTC, the compiler of CUDA C++, where a machine has it.
//!
//! Only compiles: it shows that a text is CUDA C++ for an architecture, on machines without a GPU.
#![allow(unsafe_code, clippy::unwrap_used)]

use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_void};

/// `nvrtcCreateProgram`.
type Create = unsafe extern "C" fn(
    *mut *mut c_void,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;

/// The loaded library. No GPU is needed.
pub struct Nvrtc {
    /// Kept loaded as long as its functions are called.
    library: Library,
}

impl Nvrtc {
    /// The library that `TAPML_NVRTC` names, or one that the system finds.
    pub fn open() -> Option<Nvrtc> {
        let named = std::env::var("TAPML_NVRTC").ok();
        let names = named.into_iter().chain(["libnvrtc.so.13".to_string(), "libnvrtc.so.12".to_string()]);
        // SAFETY: loading NVRTC runs its initialisers only.
        let library = names.into_iter().find_map(|name| unsafe { Library::new(name) }.ok())?;
        Some(Nvrtc { library })
    }

    /// Compiles a text for an architecture such as `sm_90a`; the log if it is refused.
    ///
    /// # Panics
    /// If a text holds a zero byte or the library lacks a function.
    pub fn compile(&self, text: &str, options: &[&str]) -> Result<(), String> {
        let text = CString::new(text).unwrap();
        let options: Vec<CString> = options.iter().map(|o| CString::new(*o).unwrap()).collect();
        let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let library = &self.library;
        let mut program = std::ptr::null_mut();
        // SAFETY: the types are those of `nvrtc.h`; all texts end with a zero, the log has the size that is said, and the
        // program is destroyed once.
        unsafe {
            let create = library.get::<Create>(b"nvrtcCreateProgram\0").unwrap();
            let compile = library
                .get::<unsafe extern "C" fn(*mut c_void, c_int, *const *const c_char) -> c_int>(
                    b"nvrtcCompileProgram\0",
                );
            let size = library
                .get::<unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int>(b"nvrtcGetProgramLogSize\0");
            let log =
                library.get::<unsafe extern "C" fn(*mut c_void, *mut u8) -> c_int>(b"nvrtcGetProgramLog\0");
            let destroy =
                library.get::<unsafe extern "C" fn(*mut *mut c_void) -> c_int>(b"nvrtcDestroyProgram\0");
            let none = std::ptr::null();
            assert_eq!(create(&mut program, text.as_ptr(), c"kernel.cu".as_ptr(), 0, none, none), 0);
            let status = compile.unwrap()(program, options.len() as c_int, options.as_ptr());
            let mut bytes = 0;
            size.unwrap()(program, &mut bytes);
            let mut said = vec![0u8; bytes];
            log.unwrap()(program, said.as_mut_ptr());
            destroy.unwrap()(&mut program);
            if status == 0 { Ok(()) } else { Err(String::from_utf8_lossy(&said).into_owned()) }
        }
    }
}
