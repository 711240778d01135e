//! Options of a device: the query string after `?` in a platform word, such as `profile=mobile&checks=off`.
//!
//! Unknown names and values are errors, which list what exists.

use std::time::Duration;
use tapml_graph::{Error, Result};

/// What a user can choose when a device is opened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WgpuOptions {
    /// Ask for the default WebGPU limits and no features, as a phone's browser grants them.
    pub(crate) mobile: bool,
    /// Compile kernels with WebGPU's guarantees: indices clamped, loops bounded, divisors checked. If nothing is said, those
    /// that whoever opened the device does not vouch for.
    pub(crate) checks: Option<bool>,
    /// Ask for `f16` where the adapter has it.
    pub(crate) f16: bool,
    /// Ask for subgroup operations where the adapter has them.
    pub(crate) subgroups: bool,
    /// Ask for matrix units where the adapter has them; without f16 and subgroups they are of no use.
    pub(crate) matrices: bool,
    /// How long submitted work may take before the device counts as lost.
    pub(crate) timeout: Duration,
}

impl Default for WgpuOptions {
    fn default() -> WgpuOptions {
        WgpuOptions {
            mobile: false,
            checks: None,
            f16: true,
            subgroups: true,
            matrices: true,
            timeout: Duration::from_secs(600),
        }
    }
}

/// The hint of every error here.
const KNOWN: &str = "known options: profile=full|mobile, checks=on|off, f16=on|off, subgroups=on|off, \
                     matrices=on|off, timeout=SECONDS";

impl WgpuOptions {
    /// Reads `name=value` pairs joined by `&`. The empty string means all defaults.
    ///
    /// # Errors
    ///
    /// Names that do not exist, and values that an option does not take.
    pub(crate) fn parse(text: &str) -> Result<WgpuOptions> {
        let mut options = WgpuOptions::default();
        for pair in text.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "profile" => options.mobile = choice(name, value, "mobile", "full")?,
                "checks" => options.checks = Some(choice(name, value, "on", "off")?),
                "f16" => options.f16 = choice(name, value, "on", "off")?,
                "subgroups" => options.subgroups = choice(name, value, "on", "off")?,
                "matrices" => options.matrices = choice(name, value, "on", "off")?,
                "timeout" => options.timeout = seconds(value)?,
                _ => return Err(Error::invalid(format!("unknown device option `{name}`")).with_hint(KNOWN)),
            }
        }
        Ok(options)
    }
}

/// Whether an option with two values has the first of them.
fn choice(name: &str, value: &str, yes: &str, no: &str) -> Result<bool> {
    match value {
        v if v == yes => Ok(true),
        v if v == no => Ok(false),
        _ => {
            let text = format!("device option `{name}` is `{yes}` or `{no}`, found `{value}`");
            Err(Error::invalid(text).with_hint(KNOWN))
        }
    }
}

/// A time of whole seconds, at least 1.
fn seconds(value: &str) -> Result<Duration> {
    let seconds = value.parse::<u32>().ok().filter(|&s| s > 0).ok_or_else(|| {
        let text = format!("device option `timeout` is a whole number of seconds from 1 on, found `{value}`");
        Error::invalid(text).with_hint(KNOWN)
    })?;
    Ok(Duration::from_secs(u64::from(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_knows_and_refuses_the_rest() {
        assert_eq!(WgpuOptions::parse("").unwrap(), WgpuOptions::default());
        let text = "profile=mobile&checks=off&f16=off&subgroups=off&matrices=off&timeout=5";
        let expected = WgpuOptions {
            mobile: true,
            checks: Some(false),
            f16: false,
            subgroups: false,
            matrices: false,
            timeout: Duration::from_secs(5),
        };
        assert_eq!(WgpuOptions::parse(text).unwrap(), expected);
        for bad in ["colour=red", "profile", "profile=phone", "checks=maybe", "timeout=0", "timeout=-1", "="]
        {
            let error = WgpuOptions::parse(bad).unwrap_err();
            assert!(error.hint().unwrap().starts_with("known options"), "{bad}: {error}");
        }
    }
}
