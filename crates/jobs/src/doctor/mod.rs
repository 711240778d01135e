//! What this machine has to run models on, what is missing, and how to install it.
//!
//! Nothing is installed or changed. Parts are looked at one after another, so that a driver that hangs is
//! known by the stage that was told last.

mod devices;
mod part;
#[cfg(feature = "remote")]
mod python;
mod subprocess;
mod webgpu;

pub use part::{PartKind, PartState, PlatformPart};

use crate::platform::PlatformSpec;
use serde::Serialize;
use tapml_exec::{RUNTIMES, WORDS};
use tapml_graph::{Error, Result};
use tapml_migrate::Progress;

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Examination {
    /// The version of this form.
    pub schema: u32,
    /// TapML's version.
    pub version: String,
    /// The operating system.
    pub os: String,
    /// The processor's architecture.
    pub arch: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// The parts, in the order of the platforms.
    pub parts: Vec<PlatformPart>,
}

/// Which platforms are looked at.
#[derive(Clone, Debug, Default)]
pub struct Doctor {
    /// Words of platforms; all if none.
    words: Vec<String>,
}

impl Doctor {
    /// Looks at these platforms, and starts the runtimes among them; at all platforms without starting runtimes if there
    /// are none. Fails on what is no platform of this machine.
    pub fn new(words: &[String]) -> Result<Doctor> {
        for word in words {
            let spec = PlatformSpec::parse(word)?;
            if spec.is_remote() || spec.to_string() != spec.word || spec.word != *word {
                let text = format!("expected a platform of this machine, found `{word}`");
                return Err(Error::invalid(text).with_hint(
                    "name it without number and options; `tapml device check` looks at one device",
                ));
            }
        }
        Ok(Doctor { words: words.to_vec() })
    }

    /// Whether a platform is among those named, or none are.
    fn is_wanted(&self, word: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|wanted| wanted == word)
    }

    /// Looks at every part. A stage is a platform.
    ///
    /// Never fails: what is wrong is in the parts.
    pub fn run(&self, progress: &dyn Progress) -> Examination {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut parts = Vec::new();
        for &word in WORDS.iter().filter(|word| self.is_wanted(word)) {
            progress.stage(word, 0);
            match word {
                "cpu" => parts.push(reference(processors)),
                "webgpu" => parts.push(webgpu::find_browser()),
                _ => parts.extend(devices::examine(word)),
            }
        }
        let runtimes: Vec<&str> = RUNTIMES.into_iter().filter(|word| self.is_wanted(word)).collect();
        if !runtimes.is_empty() {
            parts.extend(examine_runtimes(&runtimes, !self.words.is_empty(), progress));
        }
        Examination {
            schema: 1,
            version: env!("CARGO_PKG_VERSION").into(),
            os: std::env::consts::OS.into(),
            arch: std::env::consts::ARCH.into(),
            processors,
            parts,
        }
    }

    /// Whether nothing is broken, and every platform that was named can be used.
    pub fn holds(&self, found: &Examination) -> bool {
        let is_whole = |word: &String| {
            let mut own = found.parts.iter().filter(|part| part.word() == word).peekable();
            own.peek().is_some() && own.all(PlatformPart::is_usable)
        };
        found.parts.iter().all(|part| part.state != PartState::Broken) && self.words.iter().all(is_whole)
    }
}

/// The reference needs nothing but this process.
fn reference(processors: usize) -> PlatformPart {
    let name = format!("the reference, up to {processors} threads");
    PlatformPart::new("cpu", PartKind::Reference, PartState::Ready).with_name(&name)
}

#[cfg(feature = "remote")]
fn examine_runtimes(words: &[&str], start: bool, progress: &dyn Progress) -> Vec<PlatformPart> {
    python::examine(words, start, progress)
}

#[cfg(not(feature = "remote"))]
fn examine_runtimes(words: &[&str], _: bool, _: &dyn Progress) -> Vec<PlatformPart> {
    let missing = |word: &&str| PlatformPart::new(word, PartKind::Runtime, PartState::Missing);
    let reason = "this build has no runtimes: it lacks the feature `remote`";
    words.iter().map(|word| missing(word).with_reason(reason, None)).collect()
}
