//! What a platform is made of, and how far it can be used.

use serde::Serialize;
use tapml_graph::{Error, ErrorKind};

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
    pub(super) fn new(platform: &str, part: PartKind, state: PartState) -> PlatformPart {
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
    pub(super) fn with_name(self, name: &str) -> PlatformPart {
        PlatformPart { name: Some(name.into()).filter(|name: &String| !name.is_empty()), ..self }
    }

    /// A version, unless that is empty.
    pub(super) fn with_version(self, version: &str) -> PlatformPart {
        PlatformPart { version: Some(version.into()).filter(|version: &String| !version.is_empty()), ..self }
    }

    /// The part with an error as the reason: it is missing if it is not there, else broken.
    pub(super) fn with_error(self, error: &Error) -> PlatformPart {
        let state =
            if error.kind() == ErrorKind::Unavailable { PartState::Missing } else { PartState::Broken };
        PlatformPart { state, ..self }.with_reason(&error.to_string(), error.hint())
    }

    /// Why it cannot be used, and what to do.
    pub(super) fn with_reason(self, reason: &str, hint: Option<&str>) -> PlatformPart {
        PlatformPart { reason: Some(reason.into()), hint: hint.map(str::to_string), ..self }
    }

    /// Whether this part is no hindrance.
    pub fn is_usable(&self) -> bool {
        matches!(self.state, PartState::Ready | PartState::Installed)
    }

    /// The platform without the device's number.
    pub(super) fn word(&self) -> &str {
        self.platform.split(':').next().unwrap_or_default()
    }
}
