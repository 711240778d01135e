//! Panics of libraries on damaged files: caught, and not told on standard error, since an error follows.
//!
//! The hook is the process's: it is set one time and passes on whatever is not caught here.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// What `run` gives; `None` if it panicked, of which the panic hook says nothing if it was in a library.
pub fn catch<T>(run: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let tell = take_hook();
        set_hook(Box::new(move |info| {
            let library = info.location().is_some_and(|place| place.file().contains("/registry/src/"));
            // A panic of our own is a fault to be told.
            if !(library && CAUGHT.get()) {
                tell(info);
            }
        }));
    });
    // Calls may nest; the outer one is still caught afterwards.
    let outer = CAUGHT.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(run));
    CAUGHT.set(outer);
    outcome.ok()
}
