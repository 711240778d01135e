//! What is said around a session: its beginning, signs of life, failures, its end.

use super::bounds::{at_most, bounded_list, integer, label, name};
use super::{Answered, Names, Note, ReplyMessage, RequestMessage};
use crate::wire::limits::{MAX_OPS, MAX_VERSION};
use crate::wire::{
    Cancel, Credit, Data, DeviceInfo, Done, Failed, Hello, Leased, Ping, Pong, PostMortem, Queued, Welcome,
    convert,
};
use tapml_graph::{Error, Result};

// Versions are not bounded: an agent answers those that it does not speak.
impl RequestMessage for Hello {
    const ANSWERED: Answered = Answered::Always;

    fn check(&self) -> Result<()> {
        name("client", &self.client)?;
        name("token", &self.token)?;
        name("target", &self.target)?;
        integer("deadline_ms", self.deadline_ms)?;
        integer("wait_ms", self.wait_ms)
    }

    fn note(&self, _: &Names) -> Note {
        Note::Text("open the device".into())
    }
}

impl ReplyMessage for Welcome {
    fn check(&self) -> Result<()> {
        name("agent", &self.agent)?;
        let devices = self.devices.iter().filter_map(|offer| offer.info.as_ref());
        self.device.iter().chain(devices).try_for_each(device)?;
        // A client needs the limits before its next message.
        let limits = self.limits.as_ref().ok_or_else(|| Error::invalid("the welcome names no limits"))?;
        integer("max_message", limits.max_message)?;
        integer("window", limits.window)?;
        integer("deadline_ms", limits.deadline_ms)?;
        integer("idle_ms", limits.idle_ms)
    }

    fn words(&self) -> String {
        "a welcome".into()
    }
}

/// Identity, features and operators of a device.
/// Both a welcome and an agent's offer at a hub hold them.
pub fn device(info: &DeviceInfo) -> Result<()> {
    name("name", &info.name)?;
    name("driver", &info.driver)?;
    name("platform", &info.platform)?;
    bounded_list("features", info.features.len())?;
    info.features.iter().try_for_each(|f| name("feature", &f.name).and(name("value", &f.value)))?;
    at_most("operators", info.ops.len(), MAX_OPS)?;
    info.ops.iter().try_for_each(|op| {
        name("op", &op.name)?;
        bounded_list("dtypes", op.dtypes.len())?;
        name("accumulate", &op.accumulate)?;
        at_most("bytes of version", op.version.len(), MAX_VERSION)
    })
}

impl RequestMessage for Ping {
    const ANSWERED: Answered = Answered::Always;

    fn note(&self, _: &Names) -> Note {
        Note::Text("ping".into())
    }
}

impl ReplyMessage for Pong {
    fn words(&self) -> String {
        "a pong".into()
    }
}

impl RequestMessage for Cancel {
    const ANSWERED: Answered = Answered::Never;

    fn check(&self) -> Result<()> {
        integer("request", self.request)?;
        integer("grace_ms", self.grace_ms)
    }

    fn note(&self, _: &Names) -> Note {
        Note::Text(format!("give up request {}", self.request))
    }
}

impl ReplyMessage for Credit {
    fn words(&self) -> String {
        "credit".into()
    }
}

impl ReplyMessage for Done {
    fn words(&self) -> String {
        "done".into()
    }
}

impl ReplyMessage for Data {
    fn words(&self) -> String {
        format!("{} bytes of data", self.data.len())
    }
}

impl ReplyMessage for Failed {
    fn words(&self) -> String {
        let error = convert::error_from_wire(self.clone());
        format!("a failure of kind {}: {error}", error.kind().name())
    }
}

impl ReplyMessage for PostMortem {
    fn check(&self) -> Result<()> {
        integer("request", self.request)?;
        integer("busy_ms", self.busy_ms)
    }

    fn words(&self) -> String {
        format!("a post-mortem: {}", self.summary)
    }
}

impl ReplyMessage for Queued {
    fn check(&self) -> Result<()> {
        label("trouble", &self.trouble)
    }

    fn words(&self) -> String {
        "a place in a queue".into()
    }
}

impl ReplyMessage for Leased {
    fn check(&self) -> Result<()> {
        label("device", &self.device)?;
        label("agent", &self.agent)
    }

    fn words(&self) -> String {
        "a lease".into()
    }
}
