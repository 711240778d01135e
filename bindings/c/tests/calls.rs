//! What callers do wrong is an error for them, and no crash. `crates/cli/tests/c_library.rs` has a program in C.
#![allow(clippy::unwrap_used, unsafe_code, reason = "as C calls")]

use std::ffi::{CStr, CString, c_char};
use std::ptr::{null, null_mut};
use tapml_agent::{
    TAPML_FAILED, TAPML_OK, TapmlAgent, tapml_agent_start, tapml_agent_status, tapml_agent_stop,
    tapml_last_error, tapml_string_free, tapml_version,
};

/// The last error; it must not be null.
fn last_error() -> String {
    let error = tapml_last_error();
    assert!(!error.is_null());
    // SAFETY: not null, and valid until the next call.
    unsafe { CStr::from_ptr(error) }.to_str().unwrap().to_string()
}

/// Fails to start with this error.
fn expect_refusal(config: *const c_char, says: &str) {
    let mut agent = std::ptr::dangling_mut();
    // SAFETY: a string or null, and a place for a pointer.
    assert_eq!(unsafe { tapml_agent_start(config, &mut agent) }, TAPML_FAILED);
    assert!(agent.is_null(), "{says}");
    assert!(last_error().contains(says), "{} does not say `{says}`", last_error());
}

/// Several threads of an app may ask for the status at the same time.
const fn assert_shareable<T: Send + Sync>() {}
const _: () = assert_shareable::<TapmlAgent>();

#[test]
fn wrong_calls_are_errors() {
    // SAFETY: a string that lives for ever.
    let version = unsafe { CStr::from_ptr(tapml_version()) };
    assert_eq!(version.to_str().unwrap(), env!("CARGO_PKG_VERSION"));
    assert!(tapml_last_error().is_null());
    expect_refusal(null(), "`config` is null");
    expect_refusal(c"\xff".as_ptr(), "not UTF-8");
    for (config, says) in [
        ("[", "as JSON"),
        ("{\"listen\": 1}", "line 1 column"),
        ("{\"lisen\": \"\"}", "unknown field `lisen`"),
        ("{\"targets\": [\"cpu\"]}", "no device of this machine; `tapml device list`"),
        ("{\"listen\": \"0.0.0.0:0\"}", "a token is required"),
        ("{\"listen\": \"127.0.0.1:0\", \"tls_key\": \"x\"}", "belong together"),
        ("{\"listen\": \"127.0.0.1:0\", \"temporary\": \"/none/here\"}", "/none/here"),
    ] {
        let config = CString::new(config).unwrap();
        expect_refusal(config.as_ptr(), says);
    }
    // SAFETY: null is what is tested; the other pointers are places.
    unsafe {
        assert_eq!(tapml_agent_start(c"{}".as_ptr(), null_mut()), TAPML_FAILED);
        let mut status = std::ptr::dangling_mut();
        assert_eq!(tapml_agent_status(null(), &mut status), TAPML_FAILED);
        assert!(status.is_null() && last_error().contains("tapml_agent_status: `agent` is null"));
        assert_eq!(tapml_agent_stop(null_mut()), TAPML_FAILED);
        tapml_string_free(null_mut());
    }
    // Errors are those of a thread.
    assert!(std::thread::spawn(|| tapml_last_error().is_null()).join().unwrap());
}

#[test]
fn an_agent_can_be_started_again_and_a_success_clears_the_error() {
    for _ in 0..2 {
        expect_refusal(null(), "null");
        let mut agent = null_mut();
        let config = c"{\"listen\": \"127.0.0.1:0\", \"targets\": [\"emulator\"]}";
        // SAFETY: a string and a place; then the agent that was started, which is stopped one time.
        unsafe {
            assert_eq!(tapml_agent_start(config.as_ptr(), &mut agent), TAPML_OK);
            assert!(!agent.is_null() && tapml_last_error().is_null());
            assert_eq!(tapml_agent_status(agent, null_mut()), TAPML_FAILED);
            assert_eq!(tapml_agent_stop(agent), TAPML_OK);
        }
    }
}
