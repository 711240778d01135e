//! Helpers for tests that need something the machine may lack: a counted, named skip, and paths of bundled data.
//! Only dev-dependencies and `xtask` point here.
//!
//! A skip is never silent: it is printed, counted, and a failure where the environment demands the test.
#![warn(missing_docs)]

mod browser;
mod delta;
mod golden;
mod nvrtc;
mod packed;

pub use browser::Browser;
pub use delta::write_golden_gguf;
pub use golden::{golden, golden_names, goldens, model, models, write_golden};
pub use nvrtc::Nvrtc;
pub use packed::{pack, read_packed, unpack, unpack_archive};

use std::io::Write;
use std::path::PathBuf;

/// Writes a file that its owner alone may read, such as one with a token.
pub fn write_secret(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.create(true).write(true).truncate(true).open(path)?.write_all(text.as_bytes())
}

/// Notes that a test is skipped because `what` (`vulkan`, `chromium`, `models`, …) is not here.
///
/// The line goes to standard error and, when `TAPML_SKIP_LOG` names a file, is added to it, so that the test command can
/// count skips. When `TAPML_REQUIRE` lists `what`, a skip is a failure: a machine that should have it must run the test.
pub fn skip(what: &str, reason: &str) {
    let required = std::env::var("TAPML_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|r| r == what),
        "{what} is required here (TAPML_REQUIRE), but the test would be skipped: {reason}"
    );
    // The test harness names threads after their tests.
    let name = std::thread::current().name().unwrap_or("test").to_string();
    let line = format!("skipped: {name}: {what}: {reason}\n");
    eprint!("{line}");
    if let Ok(path) = std::env::var("TAPML_SKIP_LOG")
        && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path)
    {
        let _ = file.write_all(line.as_bytes());
    }
}

/// The repository's root.
///
/// Found from this crate's manifest, so that tests may run in any folder.
pub fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).map(PathBuf::from).unwrap_or(manifest)
}

/// Fails unless the file, given from the repository's root, holds exactly this text, which a test has generated. With
/// `TAPML_BLESS` set, the file is written instead.
///
/// # Panics
/// If the texts differ, with the first line that does.
pub fn expect_file(file: &str, generated: &str) {
    let path = root().join(file);
    if std::env::var_os("TAPML_BLESS").is_some() {
        if let Err(e) = std::fs::write(&path, generated) {
            panic!("could not write {}: {e}", path.display());
        }
        return;
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    let mut lines = stored.lines().zip(generated.lines()).enumerate();
    let differs = lines.find(|(_, (old, new))| old != new);
    let first = differs.map_or(String::new(), |(i, (old, new))| {
        format!("; line {}:\n  the file has {old}\n  expected is  {new}\n", i + 1)
    });
    assert!(stored == generated, "{file} is not current; TAPML_BLESS=1 writes it{first}");
}

/// The folder that `TAPML_MODELS` names, seen from the project's root; says that it is missing if there is none.
pub fn extra_models() -> Option<PathBuf> {
    let folder = std::env::var_os("TAPML_MODELS");
    if folder.is_none() {
        skip("models", "TAPML_MODELS names no folder of models");
    }
    Some(root().join(folder?))
}

/// A model of the folder that `TAPML_MODELS` names; skips the test if there is none.
pub fn extra_model(name: &str) -> Option<PathBuf> {
    let path = extra_models()?.join(name);
    if path.join("config.json").is_file() {
        return Some(path);
    }
    skip("models", &format!("{} is no model", path.display()));
    None
}
