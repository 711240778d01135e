//! What an agent on this machine offers to clients elsewhere: its devices, by the words of the command line.
//!
//! A client names what it wants; what the agent has fixed by options stays fixed.

use crate::platform::{self, PlatformSpec};
use tapml_device::{Device, DeviceInfo};
use tapml_graph::{Error, ErrorKind, Result};
pub use tapml_rpc::{Offer, Offered};

/// Devices of this machine.
#[derive(Clone, Debug, Default)]
pub struct Local {
    /// What was named; nothing means everything.
    targets: Vec<PlatformSpec>,
}

impl Local {
    /// These devices, with their options; all devices of this build if the list is empty.
    pub fn new(targets: &[String]) -> Result<Local> {
        let targets: Vec<PlatformSpec> =
            targets.iter().map(|t| PlatformSpec::parse(t)).collect::<Result<_>>()?;
        match targets.iter().find(|t| !platform::device_words().any(|w| w == t.word)) {
            None => Ok(Local { targets }),
            Some(other) => Err(Error::invalid(format!("`{other}` is no device of this machine"))
                .with_hint("`tapml device list` shows those that there are")),
        }
    }

    /// The named devices, or one entry for each backend of this build.
    fn allowed_targets(&self) -> Vec<PlatformSpec> {
        if !self.targets.is_empty() {
            return self.targets.clone();
        }
        let word = |word: &str| PlatformSpec { word: word.into(), index: 0, options: Vec::new() };
        platform::device_words().map(word).collect()
    }

    /// The devices of one target: all of a word if the whole machine is offered.
    fn target_devices(&self, target: &PlatformSpec) -> Vec<Offered> {
        // The name that a client asks for has no options: they are the agent's own affair.
        let named = |index: usize, info: Result<DeviceInfo>| {
            (PlatformSpec { index, options: Vec::new(), ..target.clone() }.to_string(), info)
        };
        if !self.targets.is_empty() {
            // Its options may make it another device than the word alone.
            return vec![named(target.index, platform::open_device(target).map(|d| d.info().clone()))];
        }
        match platform::devices(&target.word) {
            Err(error) => vec![named(target.index, Err(error))],
            Ok(infos) => infos.into_iter().enumerate().map(|(i, info)| named(i, Ok(info))).collect(),
        }
    }
}

impl Offer for Local {
    fn list(&self) -> Vec<Offered> {
        self.allowed_targets().iter().flat_map(|target| self.target_devices(target)).collect()
    }

    fn open(&self, name: &str, options: &str) -> Result<Box<dyn Device>> {
        let text = if options.is_empty() { name.to_string() } else { format!("{name}?{options}") };
        let asked = PlatformSpec::parse(&text)?;
        let same =
            |t: &&PlatformSpec| t.word == asked.word && (self.targets.is_empty() || t.index == asked.index);
        let allowed = self.allowed_targets();
        let offered = allowed.iter().find(same).ok_or_else(|| {
            let names: Vec<String> = allowed.iter().map(|t| t.word.clone()).collect();
            Error::new(ErrorKind::Unavailable, format!("the agent does not offer `{name}`"))
                .with_hint(format!("it offers: {}", names.join(", ")))
        })?;
        // What the agent has fixed, a client cannot change.
        let mut options = offered.options.clone();
        for (name, value) in asked.options {
            if !options.iter().any(|(n, _)| *n == name) {
                options.push((name, value));
            }
        }
        platform::open_for_plans(&PlatformSpec { options, ..asked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "emulator")]
    #[test]
    fn only_what_is_offered_can_be_opened() {
        let all = Local::new(&[]).unwrap();
        assert!(all.list().iter().any(|(name, info)| name == "emulator" && info.is_ok()));
        let checked = Local::new(&["emulator?check=all&profile=mobile".into()]).unwrap();
        let names: Vec<String> = checked.list().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["emulator"]);
        let device = checked.open("emulator", "profile=fast-math").unwrap();
        assert!(device.info().name.contains("mobile"), "{}", device.info().name);
        for other in ["vulkan", "emulator:1", "cpu", "ws://h:1/emulator", "x"] {
            assert!(checked.open(other, "").is_err(), "{other}");
        }
        assert!(Local::new(&["cpu".into()]).is_err());
        assert!(Local::new(&["ws://h:1/emulator".into()]).is_err());
    }
}
