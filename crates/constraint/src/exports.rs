//! The functions of the WebAssembly module, which `web/src/site/form.ts` calls. Numbers below 0 tell of a failure, whose text
//! `failure` and `failure_bytes` give. A module that traps is done with.
#![allow(unsafe_code, reason = "names of exported functions; nothing here reads memory by address")]

use crate::module::FormModule;
use std::cell::RefCell;
use tapml_graph::Result;

thread_local! {
    /// A module has one thread.
    static MODULE: RefCell<FormModule> = RefCell::default();
}

fn outcome(work: impl FnOnce(&mut FormModule) -> Result<i32>) -> i32 {
    MODULE.with_borrow_mut(|module| {
        work(module).unwrap_or_else(|error| {
            module.keep(&error);
            -1
        })
    })
}

/// Where so many bytes are written that the next call takes; 0 if they are too many.
#[unsafe(no_mangle)]
pub extern "C" fn input(bytes: usize) -> *mut u8 {
    MODULE.with_borrow_mut(|module| {
        let room = module.input(bytes);
        if room.len() == bytes { room.as_mut_ptr() } else { std::ptr::null_mut() }
    })
}

/// See [`FormModule::open`].
#[unsafe(no_mangle)]
pub extern "C" fn open() -> i32 {
    outcome(|module| module.open().map(|()| 0))
}

/// See [`FormModule::begin`]: 1 if there is a form.
#[unsafe(no_mangle)]
pub extern "C" fn begin() -> i32 {
    outcome(|module| module.begin().map(i32::from))
}

/// See [`FormModule::fill`]: where the words are.
#[unsafe(no_mangle)]
pub extern "C" fn fill() -> i32 {
    outcome(|module| module.fill().map(|words| words.as_ptr() as i32))
}

/// See [`FormModule::accept`]: 1 if the text is complete.
#[unsafe(no_mangle)]
pub extern "C" fn accept(id: u32) -> i32 {
    outcome(|module| module.accept(id).map(i32::from))
}

/// Where the text of the last failure is.
#[unsafe(no_mangle)]
pub extern "C" fn failure() -> *const u8 {
    MODULE.with_borrow(|module| module.failure().as_ptr())
}

/// Bytes of that text.
#[unsafe(no_mangle)]
pub extern "C" fn failure_bytes() -> usize {
    MODULE.with_borrow(|module| module.failure().len())
}
