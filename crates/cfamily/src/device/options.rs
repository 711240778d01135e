//! Options of a device: the query string after `?` in a platform word, such as `checks=off`.

use tapml_graph::{Error, Result};

/// What a user can choose when a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverOptions {
    /// Print kernels whose indices are kept inside their arrays.
    pub checks: bool,
    /// Offer `f16`, which needs no arithmetic of the device: every operation is one of `f32`, rounded.
    pub f16: bool,
    /// Offer subgroups of 8 where the device has none, through workgroup memory. OpenCL's alone.
    pub subgroups: bool,
}

impl Default for DriverOptions {
    fn default() -> DriverOptions {
        DriverOptions { checks: true, f16: true, subgroups: false }
    }
}

impl DriverOptions {
    /// Reads `name=value` pairs joined by `&`. The empty string means all defaults.
    ///
    /// # Errors
    /// For unknown names and values; the hint names what is known.
    pub fn parse(text: &str) -> Result<DriverOptions> {
        let mut options = DriverOptions::default();
        // `subgroups` is no switch of on and off, so that it is taken out before the others are read.
        let mut rest = Vec::new();
        for pair in text.split('&') {
            match pair.strip_prefix("subgroups=") {
                None => rest.push(pair),
                Some("emulated") => options.subgroups = true,
                Some("off") => options.subgroups = false,
                Some(other) => {
                    let text = format!("device option `subgroups` is `emulated` or `off`, found `{other}`");
                    return Err(Error::invalid(text).with_hint("known options: checks, f16, subgroups"));
                }
            }
        }
        switches(&rest.join("&"), &mut [("checks", &mut options.checks), ("f16", &mut options.f16)])?;
        Ok(options)
    }
}

/// Sets switches to what a text of `name=on` and `name=off` joined by `&` says. Fails with a hint that names them all.
pub fn switches(text: &str, known: &mut [(&str, &mut bool)]) -> Result<()> {
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let hint = format!("known options, each on or off: {}", names.join(", "));
    // An empty text has no pairs.
    for pair in text.split('&').filter(|p| !p.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some((_, place)) = known.iter_mut().find(|(known, _)| *known == name) else {
            return Err(Error::invalid(format!("unknown device option `{name}`")).with_hint(hint));
        };
        // Nothing but `on` and `off`: a misspelt value must not count as off.
        **place = match value {
            "on" => true,
            "off" => false,
            _ => {
                let text = format!("device option `{name}` is `on` or `off`, found `{value}`");
                return Err(Error::invalid(text).with_hint(hint));
            }
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_knows_and_refuses_the_rest() {
        assert_eq!(DriverOptions::parse("").unwrap(), DriverOptions::default());
        let off = DriverOptions { checks: false, f16: false, subgroups: false };
        assert_eq!(DriverOptions::parse("checks=off&f16=off").unwrap(), off);
        let emulated = DriverOptions { subgroups: true, ..DriverOptions::default() };
        assert_eq!(DriverOptions::parse("subgroups=emulated&checks=on").unwrap(), emulated);
        for bad in ["colour=on", "checks", "checks=maybe", "=", "subgroups=on"] {
            assert!(
                DriverOptions::parse(bad).unwrap_err().hint().unwrap().starts_with("known options"),
                "{bad}"
            );
        }
    }
}
