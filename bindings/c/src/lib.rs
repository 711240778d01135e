//! The C library: an agent in the process that loads it, for apps on phones and other programs that cannot start processes. Its
//! header is `include/tapml_agent.h`; a test makes it from the comments here.
//!
//! No panic crosses to the caller: it becomes an error. Every string that is given out is freed by this library.
#![warn(missing_docs)]
#![allow(unsafe_code, reason = "C hands over pointers")]

mod serving;

pub use serving::TapmlAgent;

use serving::panic_text;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use tapml::offer::AgentOptions;
use tapml::{Error, Result};

/// What was asked for was done.
pub const TAPML_OK: i32 = 0;
/// It was not done: `tapml_last_error` says why.
pub const TAPML_FAILED: i32 = 1;

thread_local! {
    static LAST_ERROR: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// The library's version, such as `0.2.0`. Never null, never to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn tapml_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Starts an agent in this process and writes a pointer to it to `agent`; null if it fails. `config` is a JSON object in UTF-8,
/// `docs/guide/phones.md` has its fields. When this returns, the agent listens; hubs are dialled in the background.
///
/// # Safety
/// `config` must be a string that ends with a zero byte, `agent` must point to a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tapml_agent_start(config: *const c_char, agent: *mut *mut TapmlAgent) -> i32 {
    guard(|| {
        if agent.is_null() {
            return Err(Error::invalid("tapml_agent_start: `agent` is null, expected a place for a pointer"));
        }
        // SAFETY: not null, and the caller says that a pointer can be written there.
        unsafe { agent.write(ptr::null_mut()) };
        // SAFETY: the caller says that a string which is not null ends with a zero byte.
        let text = unsafe { text(config, "tapml_agent_start: `config`") }?;
        let started = Box::new(TapmlAgent::start(AgentOptions::from_json(text)?)?);
        // SAFETY: as above.
        unsafe { agent.write(Box::into_raw(started)) };
        Ok(())
    })
}

/// Writes what an agent does to `status`, as a JSON object in UTF-8, to be freed by `tapml_string_free`; null if it fails. Its devices
/// are looked at anew, which may take seconds.
///
/// # Safety
/// `agent` must be one that was started and not stopped, `status` must point to a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tapml_agent_status(agent: *const TapmlAgent, status: *mut *mut c_char) -> i32 {
    guard(|| {
        if status.is_null() {
            return Err(Error::invalid(
                "tapml_agent_status: `status` is null, expected a place for a pointer",
            ));
        }
        // SAFETY: not null, and the caller says that a pointer can be written there.
        unsafe { status.write(ptr::null_mut()) };
        // SAFETY: the caller says that a pointer which is not null is that of a living agent, which is only read.
        let agent = unsafe { agent.as_ref() }.ok_or_else(|| no_agent("tapml_agent_status"))?;
        let text = without_zeros(&agent.status()?);
        // SAFETY: as above.
        unsafe { status.write(text.into_raw()) };
        Ok(())
    })
}

/// Stops an agent, ends its sessions, waits for it and frees it, whatever is returned: `TAPML_FAILED` says that it had ended with an
/// error before.
///
/// # Safety
/// `agent` must be one that was started and not stopped. No other thread may use it during or after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tapml_agent_stop(agent: *mut TapmlAgent) -> i32 {
    guard(|| {
        if agent.is_null() {
            return Err(no_agent("tapml_agent_stop"));
        }
        // SAFETY: not null, so it is from `Box::into_raw` in `tapml_agent_start`, and the caller says that nobody uses it any more.
        let agent = unsafe { Box::from_raw(agent) };
        agent.stop()
    })
}

/// Why the last call of this library in this thread failed; null if it did not. It is valid until this thread's next call of
/// another function of this library, and is not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn tapml_last_error() -> *const c_char {
    let last = LAST_ERROR.try_with(|last| last.borrow().as_ref().map(|text| text.as_ptr()));
    // The thread is at its end and has no errors any more.
    last.ok().flatten().unwrap_or(ptr::null())
}

/// Frees a string that `tapml_agent_status` has made. Null is let pass.
///
/// # Safety
/// `string` must be null, or such a string that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tapml_string_free(string: *mut c_char) {
    if !string.is_null() {
        // SAFETY: not null, so it is from `CString::into_raw` in `tapml_agent_status`, and the caller gives it up.
        drop(unsafe { CString::from_raw(string) });
    }
}

/// Runs what a function of C does, and keeps its error for `tapml_last_error`.
fn guard(work: impl FnOnce() -> Result<()>) -> i32 {
    // What the work has touched is given up with it.
    let done = catch_unwind(AssertUnwindSafe(work));
    let done = done.unwrap_or_else(|panic| Err(Error::bug(panic_text(panic.as_ref()))));
    let (code, error) = match done {
        Ok(()) => (TAPML_OK, None),
        Err(error) => (TAPML_FAILED, Some(without_zeros(&error_text(&error)))),
    };
    // A thread at its end has nobody who could ask.
    let _ = LAST_ERROR.try_with(|last| last.replace(error));
    code
}

/// The error with its advice.
fn error_text(error: &Error) -> String {
    match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}

/// A string for C, which would end at a zero inside.
fn without_zeros(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

/// A string of the caller.
///
/// # Safety
/// `string` must be null, or end with a zero byte and live as long as the result is used.
unsafe fn text<'a>(string: *const c_char, what: &str) -> Result<&'a str> {
    if string.is_null() {
        return Err(Error::invalid(format!("{what} is null, expected a JSON object")));
    }
    // SAFETY: not null, and the caller says that it ends with a zero byte.
    let string = unsafe { CStr::from_ptr(string) };
    string.to_str().map_err(|e| Error::invalid(format!("{what} is not UTF-8: {e}")))
}

fn no_agent(function: &str) -> Error {
    Error::invalid(format!("{function}: `agent` is null, expected one that tapml_agent_start has made"))
}
