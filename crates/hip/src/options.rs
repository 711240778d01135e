//! Options of a device: the query string after `?` in a platform word, such as `checks=off`.

use tapml_graph::{Error, Result};

/// What a user can choose when a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Print kernels whose indices are kept inside their arrays.
    pub(crate) checks: bool,
    /// Offer `f16`, which needs no arithmetic of the device: every operation is one of `f32`, rounded.
    pub(crate) f16: bool,
}

const KNOWN: &str = "known options: checks=on|off, f16=on|off";

impl Options {
    /// Reads `name=value` pairs joined by `&`. The empty string means all defaults.
    pub(crate) fn parse(text: &str) -> Result<Options> {
        let mut options = Options { checks: true, f16: true };
        for pair in text.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let on = match value {
                "on" => true,
                "off" => false,
                _ => {
                    let text = format!("device option `{name}` is `on` or `off`, found `{value}`");
                    return Err(Error::invalid(text).with_hint(KNOWN));
                }
            };
            match name {
                "checks" => options.checks = on,
                "f16" => options.f16 = on,
                _ => return Err(Error::invalid(format!("unknown device option `{name}`")).with_hint(KNOWN)),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_knows_and_refuses_the_rest() {
        assert_eq!(Options::parse("").unwrap(), Options { checks: true, f16: true });
        assert_eq!(Options::parse("checks=off&f16=off").unwrap(), Options { checks: false, f16: false });
        for bad in ["colour=on", "checks", "checks=maybe", "="] {
            assert!(Options::parse(bad).unwrap_err().hint().unwrap().starts_with("known options"), "{bad}");
        }
    }
}
