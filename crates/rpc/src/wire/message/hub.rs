//! What an agent that has dialled a hub says to it.
//!
//! A hub shows these texts to people and makes addresses of names, so that both are bounded in length and in their
//! signs.

use super::AgentMessage;
use super::bounds::{label, name};
use super::session::device;
use crate::wire::limits::MAX_AGENT_DEVICES;
use crate::wire::{Heartbeat, Offer, Refused, Register};
use tapml_graph::{Error, Result};

impl AgentMessage for Register {
    fn check(&self) -> Result<()> {
        name("token", &self.token)?;
        label("agent", &self.agent)?;
        label("instance", &self.instance)?;
        // An agent need not bring a name.
        if !self.name.is_empty() {
            plain("an agent", &self.name, "")?;
        }
        let (devices, capabilities) = (self.devices.len(), self.capabilities.len());
        if devices.max(capabilities) > MAX_AGENT_DEVICES {
            let text = format!("{devices} devices, {capabilities} capabilities");
            return Err(Error::invalid(format!("{text}, at most {MAX_AGENT_DEVICES} of either")));
        }
        self.capabilities.iter().try_for_each(|c| plain("a capability", c, ""))?;
        self.devices.iter().try_for_each(offer)?;
        let mut names: Vec<&str> = self.devices.iter().map(|d| d.name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => Err(Error::invalid(format!("the device `{}` is offered twice", pair[0]))),
        }
    }
}

impl AgentMessage for Heartbeat {}

impl AgentMessage for Refused {
    fn check(&self) -> Result<()> {
        label("session", &self.session)
    }
}

/// What an agent says of one of its devices.
fn offer(offer: &Offer) -> Result<()> {
    // Device names may have a number behind a colon.
    plain("a device", &offer.name, ":")?;
    if let Some(info) = &offer.info {
        label("name", &info.name)?;
        label("driver", &info.driver)?;
        plain("a platform", &info.platform, "")?;
        device(info)?;
    }
    label("reason", &offer.reason)
}

/// A name that can be part of an address.
fn plain(what: &str, value: &str, more: &str) -> Result<()> {
    let sign = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c) || more.contains(c);
    if !(1..=64).contains(&value.len()) || !value.chars().all(sign) {
        let text = format!("`{}` is no name of {what}", value.escape_debug().take(80).collect::<String>());
        let hint = format!("names have 1 to 64 letters, digits, `.`, `_`, `-`{more}");
        return Err(Error::invalid(text).with_hint(hint));
    }
    Ok(())
}
