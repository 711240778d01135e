//! Where files are kept that can be made again, such as compiled kernels.
//!
//! Nothing here is needed to run: a deleted cache is filled again.

use std::path::PathBuf;

/// The user's folder for such files: `$TAPML_CACHE` (`off` for none), else `tapml` in `$XDG_CACHE_HOME` or `~/.cache`. It
/// need not exist.
pub fn user_cache() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let own = named("TAPML_CACHE");
    if own.as_ref().is_some_and(|value| value == "off") {
        return None;
    }
    let shared = || named("XDG_CACHE_HOME").map(|root| PathBuf::from(root).join("tapml"));
    let home =
        || named("HOME").or(named("LOCALAPPDATA")).map(|home| PathBuf::from(home).join(".cache/tapml"));
    own.map(PathBuf::from).or_else(shared).or_else(home)
}
