//! Options of an emulator and their form on the command line.
//!
//! The form is that of a URL's query. Unknown words are errors, so that a misspelt check is not silently left out.

use crate::profile::Profile;
use std::time::Duration;
use tapml_device::{Error, Features, Limits, Result};

/// Which defects are looked for while kernels run.
///
/// Each check costs time. [`Checks::is_any`] is asked once per dispatch; without checks the VM has no hooks at all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Checks {
    /// Indices outside their array, vector or buffer.
    pub bounds: bool,
    /// Reads of memory that nobody wrote.
    pub uninit: bool,
    /// Data races within and across workgroups.
    pub race: bool,
    /// Barriers and other uniform operations in divergent control flow.
    pub barrier: bool,
    /// The first NaN or infinity born from finite operands.
    pub nonfinite: bool,
}

impl Checks {
    /// No checks.
    pub const NONE: Checks =
        Checks { bounds: false, uninit: false, race: false, barrier: false, nonfinite: false };
    /// All checks.
    pub const ALL: Checks = Checks { bounds: true, uninit: true, race: true, barrier: true, nonfinite: true };

    /// Whether anything is checked.
    pub fn is_any(self) -> bool {
        self != Checks::NONE
    }

    /// `all`, `none`, or a list such as `bounds,race`.
    pub fn parse(list: &str) -> Result<Checks> {
        let mut checks = Checks::NONE;
        for word in list.split(',') {
            match word.trim() {
                // Words act from left to right: `all` and `none` replace what stands before them.
                "all" => checks = Checks::ALL,
                "none" => checks = Checks::NONE,
                "bounds" => checks.bounds = true,
                "uninit" => checks.uninit = true,
                "race" => checks.race = true,
                "barrier" => checks.barrier = true,
                "nonfinite" => checks.nonfinite = true,
                other => {
                    return Err(Error::invalid(format!("unknown emulator check `{other}`")).with_hint(
                        "checks: all, none, or a list of bounds, uninit, race, barrier, nonfinite",
                    ));
                }
            }
        }
        Ok(checks)
    }
}

/// How an emulator behaves.
///
/// # Examples
///
/// ```
/// use tapml_emulator::EmulatorOptions;
///
/// let options = EmulatorOptions::parse("check=bounds&threads=2").unwrap();
/// assert!(options.check.bounds && !options.check.race);
/// assert_eq!(options.threads, Some(2));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EmulatorOptions {
    /// The device to imitate.
    pub profile: Profile,
    /// What to look for.
    pub check: Checks,
    /// Threads that workgroups run on; `None` means one per processor.
    pub threads: Option<usize>,
    /// How long one workgroup may run before its dispatch is stopped; `None` means ten seconds.
    pub timeout: Option<Duration>,
    /// Whether it says that it is a GPU, so that it gets the kernels that GPUs get.
    pub gpu: bool,
    /// Whether it has matrix units, and the workgroup memory of GPUs that have them.
    pub matrices: bool,
}

/// Lanes of the subgroups that hold matrices.
/// Other sizes have no matrices, whatever the options say.
const MATRIX_LANES: u32 = 32;
/// Bytes of workgroup memory beside matrix units.
/// WebGPU grants every kernel 16 KiB only.
const MATRIX_MEMORY: u32 = 48 << 10;

impl EmulatorOptions {
    /// Features of the device; `subgroup_size` is the one size of subgroups.
    pub(crate) fn features(&self, subgroup_size: u32) -> Features {
        let features = self.profile.features(subgroup_size);
        // Matrices hold `f16` and are spread over subgroups of 32.
        let able = features.f16 && features.subgroups.is_some() && subgroup_size == MATRIX_LANES;
        Features { matrices: self.matrices && able, ..features }
    }

    /// Its limits.
    pub(crate) fn limits(&self) -> Limits {
        let limits = self.profile.limits();
        let memory = if self.matrices { MATRIX_MEMORY } else { 0 };
        Limits { max_workgroup_memory: limits.max_workgroup_memory.max(memory), ..limits }
    }

    /// The form on the command line, such as `check=all&profile=mobile&threads=2`. An empty text gives the defaults.
    ///
    /// # Errors
    ///
    /// Unknown keys, and values that a key does not take. The hint lists what exists.
    pub fn parse(query: &str) -> Result<EmulatorOptions> {
        let mut options = EmulatorOptions::default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            match key {
                "check" => options.check = Checks::parse(value)?,
                "profile" => options.profile = Profile::parse(value)?,
                "threads" => options.threads = Some(parse_threads(value)?),
                "timeout" => options.timeout = Some(parse_timeout(value)?),
                "kind" => options.gpu = parse_kind(value)?,
                "matrices" => options.matrices = parse_matrices(value)?,
                _ => {
                    return Err(Error::invalid(format!("unknown emulator option `{key}`")).with_hint(
                        "options: check, profile, kind, matrices, threads, timeout; for example emulator?check=all&profile=mobile",
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// A number of threads. The upper bound keeps a mistyped number from starting threads without end.
fn parse_threads(value: &str) -> Result<usize> {
    value
        .parse()
        .ok()
        .filter(|n| (1..=1024).contains(n))
        .ok_or_else(|| Error::invalid(format!("threads must be a number from 1 to 1024, found `{value}`")))
}

/// A whole number of seconds, at most a day.
fn parse_timeout(value: &str) -> Result<Duration> {
    value.parse().ok().filter(|n| (1..=86_400).contains(n)).map(Duration::from_secs).ok_or_else(|| {
        Error::invalid(format!("timeout must be a number of seconds from 1 to 86400, found `{value}`"))
    })
}

/// Whether the device has matrix units.
fn parse_matrices(value: &str) -> Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Error::invalid(format!("matrices must be on or off, found `{value}`"))),
    }
}

/// Whether the device says that it is a GPU.
fn parse_kind(value: &str) -> Result<bool> {
    match value {
        "gpu" => Ok(true),
        "cpu" => Ok(false),
        _ => Err(Error::invalid(format!("kind must be gpu or cpu, found `{value}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_form() {
        let options =
            EmulatorOptions::parse("check=all&profile=mobile&threads=2&timeout=5&kind=gpu&matrices=on")
                .unwrap();
        let expected = EmulatorOptions {
            profile: Profile::MobileWebgpu,
            check: Checks::ALL,
            threads: Some(2),
            timeout: Some(Duration::from_secs(5)),
            gpu: true,
            matrices: true,
        };
        assert_eq!(options, expected);
        assert_eq!(EmulatorOptions::parse("").unwrap(), EmulatorOptions::default());
        let some = EmulatorOptions::parse("check=bounds,race").unwrap().check;
        assert_eq!(some, Checks { bounds: true, race: true, ..Checks::NONE });
    }

    #[test]
    fn unknown_words_say_what_exists() {
        let hint =
            |query: &str| EmulatorOptions::parse(query).unwrap_err().hint().unwrap_or_default().to_string();
        assert!(hint("check=speed").contains("nonfinite"));
        assert!(hint("profile=tpu").contains("fast-math"));
        assert!(hint("colour=red").contains("threads"));
        assert!(
            EmulatorOptions::parse("kind=tpu").is_err() && !EmulatorOptions::parse("kind=cpu").unwrap().gpu
        );
        assert!(EmulatorOptions::parse("threads=0").is_err() && EmulatorOptions::parse("timeout=0").is_err());
    }
}
