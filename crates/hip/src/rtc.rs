//! hipRTC, the compiler of HIP in a library: from text to a code object for the thread's device.
//!
//! Code is made anew in each process.
#![allow(unsafe_code)]

use crate::error::HipFailure;
use crate::sys::{HipObject, HipStatus, Rtc};
use std::ffi::{CString, c_char, c_int};
use std::ptr;
use tapml_cfamily::device::Refusal;

/// A call of the library that failed.
fn call_refusal(status: HipStatus) -> Refusal<HipFailure> {
    Refusal::Compiler(format!("hipRTC status {status}"))
}

/// Compiles a text. Without a named architecture hipRTC compiles for the device of the thread.
pub(crate) fn compile(rtc: &Rtc, text: &str) -> Result<Vec<u8>, Refusal<HipFailure>> {
    let program = RtcProgram::new(rtc, text)?;
    // No contraction: a product and a sum are rounded one by one, as the text has them.
    let mut options = [c"-std=c++17".as_ptr(), c"-ffp-contract=off".as_ptr()];
    // SAFETY: so many options, each ending with a zero.
    let status =
        unsafe { (rtc.hiprtcCompileProgram)(program.raw, options.len() as c_int, options.as_mut_ptr()) };
    if status == 0 {
        return program.bytes(rtc.hiprtcGetCodeSize, rtc.hiprtcGetCode);
    }
    Err(match program.log() {
        log if log.is_empty() => call_refusal(status),
        log => Refusal::Log(log),
    })
}

/// Asks for a length, terminator included.
type SizeFunction = unsafe extern "C" fn(HipObject, *mut usize) -> HipStatus;
/// Fills a buffer of that length.
type Take = unsafe extern "C" fn(HipObject, *mut c_char) -> HipStatus;

/// A text and what was made of it.
struct RtcProgram<'a> {
    /// Whose program it is.
    rtc: &'a Rtc,
    /// Owned.
    raw: HipObject,
}

impl<'a> RtcProgram<'a> {
    /// # Errors
    /// If the text holds a zero byte or the library fails.
    fn new(rtc: &'a Rtc, text: &str) -> Result<RtcProgram<'a>, Refusal<HipFailure>> {
        let text = CString::new(text).map_err(|_| Refusal::Log("the text holds a zero byte".into()))?;
        let mut raw = ptr::null_mut();
        // SAFETY: text and name end with a zero; no headers are handed over.
        let status = unsafe {
            let (create, none) = (rtc.hiprtcCreateProgram, ptr::null_mut());
            create(&mut raw, text.as_ptr(), c"kernel.hip".as_ptr(), 0, none, none)
        };
        if status == 0 { Ok(RtcProgram { rtc, raw }) } else { Err(call_refusal(status)) }
    }

    /// The compiler's messages; empty if there are none.
    fn log(&self) -> String {
        let bytes = self.bytes(self.rtc.hiprtcGetProgramLogSize, self.rtc.hiprtcGetProgramLog);
        let bytes = bytes.unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_matches(['\0', '\n', ' ']).to_string()
    }

    /// A length, then as many bytes.
    fn bytes(&self, size: SizeFunction, take: Take) -> Result<Vec<u8>, Refusal<HipFailure>> {
        let mut len = 0;
        // SAFETY: gives a number.
        let status = unsafe { size(self.raw, &mut len) };
        if status != 0 {
            return Err(call_refusal(status));
        }
        let mut bytes = vec![0u8; len];
        // SAFETY: room for as many bytes as were said.
        let status = unsafe { take(self.raw, bytes.as_mut_ptr().cast()) };
        if status == 0 { Ok(bytes) } else { Err(call_refusal(status)) }
    }
}

impl Drop for RtcProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: owned and destroyed once.
        unsafe { (self.rtc.hiprtcDestroyProgram)(&mut self.raw) };
    }
}
