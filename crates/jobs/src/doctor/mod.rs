//! What this machine has to run models on, what is missing, and how to install it.
//!
//! Nothing is installed or changed. Parts are looked at one after another, so that a driver that hangs is
//! known by the stage that was told last.

mod devices;
#[cfg(feature = "remote")]
mod python;
mod subprocess;
mod webgpu;

use crate::platform::{self, PlatformSpec};
use serde::Serialize;
use tapml_exec::{RUNTIMES, WORDS};
use tapml_graph::{Error, ErrorKind, Result};
use tapml_migrate::Progress;

/// How far something can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PartState {
    /// It was used just now, and what it gave is right.
    Ready,
    /// It is here and was not started.
    Installed,
    /// It is not here.
    Missing,
    /// It is here and does not work.
    Broken,
}

/// The sort of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PartKind {
    /// The reference on this machine's processor.
    Reference,
    /// A device with its driver.
    Device,
    /// The library that compiles a platform's kernels.
    Compiler,
    /// A browser with WebGPU.
    Browser,
    /// Python with the package that other runtimes need.
    Python,
    /// Another runtime, in Python.
    Runtime,
}

/// Something that a platform is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlatformPart {
    /// The word on the command line: `vulkan:1`, `ort`; `python` for Python itself.
    pub platform: String,
    /// What it is.
    pub part: PartKind,
    /// How far it can be used.
    pub state: PartState,
    /// Its own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The version of its driver or package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why it cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What to do about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl PlatformPart {
    /// A part without name, version and reason.
    fn new(platform: &str, part: PartKind, state: PartState) -> PlatformPart {
        PlatformPart {
            platform: platform.into(),
            part,
            state,
            name: None,
            version: None,
            reason: None,
            hint: None,
        }
    }

    /// Its own name, unless that is empty.
    fn with_name(self, name: &str) -> PlatformPart {
        PlatformPart { name: Some(name.into()).filter(|name: &String| !name.is_empty()), ..self }
    }

    /// A version, unless that is empty.
    fn with_version(self, version: &str) -> PlatformPart {
        PlatformPart { version: Some(version.into()).filter(|version: &String| !version.is_empty()), ..self }
    }

    /// The part with an error as the reason: it is missing if it is not there, else broken.
    fn with_error(self, error: &Error) -> PlatformPart {
        let state =
            if error.kind() == ErrorKind::Unavailable { PartState::Missing } else { PartState::Broken };
        PlatformPart { state, ..self }.with_reason(&error.to_string(), error.hint())
    }

    /// Why it cannot be used, and what to do.
    fn with_reason(self, reason: &str, hint: Option<&str>) -> PlatformPart {
        PlatformPart { reason: Some(reason.into()), hint: hint.map(str::to_string), ..self }
    }

    /// Whether this part is no hindrance.
    pub fn is_usable(&self) -> bool {
        matches!(self.state, PartState::Ready | PartState::Installed)
    }

    /// The platform without the device's number.
    fn word(&self) -> &str {
        self.platform.split(':').next().unwrap_or_default()
    }
}

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

/// The words of the devices that this build has.
fn has_backend(word: &str) -> bool {
    platform::device_words().any(|known| known == word)
}
