//! Names of devices, and which of them a client asks for.

use tapml_exec::WORDS;

/// An agent and one of its devices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The agent's name.
    pub agent: String,
    /// The device's name at the agent.
    pub device: String,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.agent, self.device)
    }
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceRequest {
    /// This device.
    Exactly(Place),
    /// Any device of a platform.
    Platform(String),
    /// Any device of an agent.
    Agent(String),
}

impl DeviceRequest {
    /// Reads `AGENT/DEVICE`, a platform's word, or `AGENT`.
    pub fn parse(name: &str) -> DeviceRequest {
        match name.split_once('/') {
            Some((agent, device)) => {
                DeviceRequest::Exactly(Place { agent: agent.into(), device: device.into() })
            }
            None if WORDS.contains(&name) => DeviceRequest::Platform(name.into()),
            None => DeviceRequest::Agent(name.into()),
        }
    }

    /// Whether this device is such.
    pub fn suits(&self, place: &Place) -> bool {
        match self {
            DeviceRequest::Exactly(exact) => exact == place,
            DeviceRequest::Platform(word) => place.device.split(':').next() == Some(word),
            DeviceRequest::Agent(agent) => place.agent == *agent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_a_device_a_platform_or_an_agent() {
        let exact = Place { agent: "lab3".into(), device: "vulkan:1".into() };
        assert_eq!(DeviceRequest::parse("lab3/vulkan:1"), DeviceRequest::Exactly(exact.clone()));
        assert!(DeviceRequest::parse("vulkan").suits(&exact) && DeviceRequest::parse("lab3").suits(&exact));
        assert!(
            !DeviceRequest::parse("webgpu").suits(&exact)
                && !DeviceRequest::parse("lab3/vulkan").suits(&exact)
        );
    }
}
