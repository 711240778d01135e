//! The registry: which agents are here or at other hubs, and which devices they offer.

use super::device_request::Place;
use super::lease::{Capacity, DeviceCapacity};
use super::rows::AgentRow;
use crate::wire::limits::MAX_LABEL;
use crate::wire::{AdapterKind, Offer, Register, ServedOp};
use std::collections::BTreeMap;
use tapml_exec::WORDS;
use tapml_graph::{Error, ErrorKind, Result};

/// Most agents at once.
const AGENTS: usize = 1024;

/// Most devices of all agents: a list of them is one message.
const DEVICES: usize = 4096;

/// Most operators of all devices, for the same reason.
const OPERATORS: usize = 8192;

/// Most sessions that one device may say to take.
const SESSIONS: u32 = 64;

/// Sessions of an emulator or a CPU that does not say how many it takes.
const SHARED: u32 = 4;

/// Where an agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// It has this one of the hub's connections.
    Here(u64),
    /// It is at the hub with this address.
    Away(String),
}

/// An agent that is there.
struct Agent {
    location: Location,
    instance: String,
    /// Who it is.
    agent: String,
    devices: Vec<Offer>,
    /// How many sessions it takes, of all devices together.
    sessions: u32,
}

/// A device of an agent that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The device.
    pub place: Place,
    /// Where its agent is.
    pub location: Location,
    /// Who the agent is.
    pub agent: String,
    /// How many sessions the device takes.
    pub sessions: u32,
}

/// See the module.
#[derive(Default)]
pub struct Registry {
    agents: BTreeMap<String, Agent>,
}

impl Registry {
    /// Makes an agent known by the name that it asks for, or by one of its own. The connection that it had before, if any,
    /// is returned: it is dead.
    pub fn register(&mut self, connection: u64, asked: Register) -> Result<(String, Option<u64>)> {
        if WORDS.contains(&asked.name.as_str()) {
            return Err(Error::invalid(format!(
                "an agent cannot be named `{}`, a platform's word",
                asked.name
            )));
        }
        let name = if asked.name.is_empty() { self.free_name(&asked.instance) } else { asked.name.clone() };
        let old = self.agents.get(&name);
        // The same instance on another connection is an agent that came back before its old connection was
        // found dead.
        if old.is_some_and(|old| old.location != Location::Here(connection) && old.instance != asked.instance)
        {
            let text = format!("another agent is named `{name}`");
            return Err(Error::new(ErrorKind::Unavailable, text).with_hint("give the agent another name"));
        }
        self.expect_room(&name, &asked)?;
        let before = match old.map(|old| &old.location) {
            Some(Location::Here(old)) if *old != connection => Some(*old),
            _ => None,
        };
        let mut agent = Agent::new(Location::Here(connection), asked);
        // A list tells which operators a device has, a session what it takes.
        let infos = agent.devices.iter_mut().filter_map(|d| d.info.as_mut());
        infos.flat_map(|info| &mut info.ops).for_each(|op| {
            *op = ServedOp { name: std::mem::take(&mut op.name), ..ServedOp::default() };
        });
        self.agents.insert(name.clone(), agent);
        Ok((name, before))
    }

    /// Fails if this agent would be one too many, or offers too much beside the others.
    fn expect_room(&self, name: &str, asked: &Register) -> Result<()> {
        let full = |text: String| Err(Error::new(ErrorKind::Unavailable, text));
        if !self.agents.contains_key(name) && self.agents.len() >= AGENTS {
            return full(format!("the hub has {AGENTS} agents already"));
        }
        // What an agent of this name offered before is replaced, so it takes no room.
        let others: Vec<&Agent> =
            self.agents.iter().filter(|(other, _)| *other != name).map(|(_, agent)| agent).collect();
        let devices = others.iter().map(|agent| agent.devices.len()).sum::<usize>() + asked.devices.len();
        if devices > DEVICES {
            return full(format!("the hub knows no more than {DEVICES} devices"));
        }
        let known = others.iter().map(|agent| operators(&agent.devices)).sum::<usize>();
        if known + operators(&asked.devices) > OPERATORS {
            return full(format!(
                "the hub knows no more than {OPERATORS} operators of devices that run them"
            ));
        }
        Ok(())
    }

    fn free_name(&self, instance: &str) -> String {
        // An agent that comes back keeps its name, which clients have in their commands.
        let own = self.agents.iter().find(|(name, a)| name.starts_with("agent-") && a.instance == instance);
        if let Some((name, _)) = own {
            return name.clone();
        }
        let mut names = (1..).map(|n| format!("agent-{n}"));
        names.find(|name| !self.agents.contains_key(name)).unwrap_or_default()
    }

    /// The agent of this connection is gone; its name, if it had not been replaced.
    pub fn leave(&mut self, connection: u64) -> Option<String> {
        let location = Location::Here(connection);
        let agent = self.agents.iter().find(|(_, agent)| agent.location == location);
        let name = agent.map(|(name, _)| name.clone())?;
        self.agents.remove(&name);
        Some(name)
    }

    /// Whether an agent is where it was.
    pub fn has(&self, location: &Location) -> bool {
        self.agents.values().any(|agent| agent.location == *location)
    }

    /// A device that can be used.
    pub fn find(&self, place: &Place) -> Option<Destination> {
        let agent = self.agents.get(&place.agent)?;
        let offer = agent.usable().find(|offer| offer.name == place.device)?;
        Some(Destination {
            place: place.clone(),
            location: agent.location.clone(),
            agent: agent.agent.clone(),
            sessions: agent.sessions_of(offer),
        })
    }

    /// A device of an agent that is here.
    pub fn find_local(&self, place: &Place) -> Option<Destination> {
        self.find(place).filter(|target| matches!(target.location, Location::Here(_)))
    }

    /// What an agent that is here has registered, for other hubs.
    pub fn row(&self, name: &str) -> Option<Register> {
        let agent = self.agents.get(name).filter(|agent| matches!(agent.location, Location::Here(_)))?;
        Some(Register {
            name: name.into(),
            agent: agent.agent.clone(),
            instance: agent.instance.clone(),
            devices: agent.devices.clone(),
            sessions: agent.sessions,
            ..Register::default()
        })
    }

    /// Takes over which agents the other hubs have.
    pub fn set_remote(&mut self, rows: Vec<AgentRow>) {
        // The rows are all agents elsewhere: one that is not among them has left.
        self.agents.retain(|_, agent| matches!(agent.location, Location::Here(_)));
        for AgentRow { url, register, .. } in rows {
            let Some(r) = register else { continue };
            let (name, agent) = (r.name.clone(), Agent::new(Location::Away(url), r));
            // An agent of this hub's own that has moved is found out by its connection.
            self.agents.entry(name).or_insert(agent);
        }
    }

    /// All devices under the names that clients ask for, with how many sessions they have.
    pub fn list(&self, busy: impl Fn(&Place) -> u32) -> Vec<Offer> {
        let mut offers = Vec::new();
        for (name, agent) in &self.agents {
            for offer in &agent.devices {
                let place = Place { agent: name.clone(), device: offer.name.clone() };
                let (busy, sessions) = (busy(&place), agent.sessions_of(offer));
                let (name, agent) = (place.to_string(), agent.agent.clone());
                offers.push(Offer { name, agent, busy, sessions, ..offer.clone() });
            }
        }
        offers
    }

    /// How many sessions the agents and their usable devices take.
    pub fn capacities(&self) -> BTreeMap<String, Capacity> {
        let capacity = |agent: &Agent| {
            let device =
                |offer: &Offer| DeviceCapacity { device: offer.name.clone(), sessions: sessions(offer) };
            Capacity { sessions: agent.sessions, devices: agent.usable().map(device).collect() }
        };
        self.agents.iter().map(|(name, agent)| (name.clone(), capacity(agent))).collect()
    }
}

impl Agent {
    fn new(location: Location, register: Register) -> Agent {
        let Register { instance, agent, devices, sessions, .. } = register;
        let sessions = if sessions == 0 { u32::MAX } else { sessions };
        Agent { location, instance, agent, devices, sessions }
    }

    fn sessions_of(&self, offer: &Offer) -> u32 {
        sessions(offer).min(self.sessions)
    }

    /// The devices that could be opened.
    fn usable(&self) -> impl Iterator<Item = &Offer> {
        self.devices.iter().filter(|offer| offer.info.is_some())
    }
}

/// How many operators these devices have; one with a long name counts as several.
fn operators(devices: &[Offer]) -> usize {
    let ops = devices.iter().filter_map(|offer| offer.info.as_ref()).flat_map(|info| &info.ops);
    ops.map(|op| 1 + op.name.len() / MAX_LABEL).sum()
}

/// How many sessions a device takes at once.
fn sessions(offer: &Offer) -> u32 {
    let cpu = offer.info.as_ref().is_some_and(|info| info.kind() == AdapterKind::Cpu);
    match offer.sessions {
        0 if cpu => SHARED,
        0 => 1,
        n => n.min(SESSIONS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::DeviceInfo;

    fn offer(name: &str) -> Offer {
        let info = DeviceInfo { platform: "vulkan".into(), ..Default::default() };
        Offer { name: name.into(), info: Some(info), ..Default::default() }
    }

    fn agent(name: &str, devices: &[&str]) -> Register {
        let devices = devices.iter().map(|d| offer(d)).collect();
        Register { name: name.into(), instance: name.into(), devices, ..Default::default() }
    }

    #[test]
    fn an_agent_comes_back_to_its_name_and_nobody_else_takes_it() {
        let mut r = Registry::default();
        assert_eq!(r.register(1, agent("a", &["vulkan"])).unwrap(), ("a".into(), None));
        let stranger = Register { instance: "other".into(), ..agent("a", &[]) };
        assert!(r.register(2, stranger).is_err());
        assert_eq!(r.register(3, agent("a", &["vulkan"])).unwrap(), ("a".into(), Some(1)));
        assert_eq!(r.leave(1), None);
        assert!(r.has(&Location::Here(3)), "the old connection's end is not the agent's");
        assert!(r.register(4, agent("vulkan", &[])).is_err());
        let nameless = |instance: &str| Register { instance: instance.into(), ..agent("", &["vulkan"]) };
        assert_eq!(r.register(5, nameless("x")).unwrap().0, "agent-1");
        assert_eq!(r.register(6, nameless("y")).unwrap().0, "agent-2");
        assert_eq!(r.register(7, nameless("x")).unwrap(), ("agent-1".into(), Some(5)));
        assert_eq!(r.leave(3).as_deref(), Some("a"));
    }

    #[test]
    fn agents_of_other_hubs_are_found_as_long_as_their_hub_tells_of_them() {
        let mut r = Registry::default();
        r.register(1, agent("a", &["vulkan"])).unwrap();
        let row = |register| AgentRow { hub: "h2".into(), url: "ws://h2".into(), register: Some(register) };
        r.set_remote(vec![row(agent("b", &["webgpu"])), row(agent("a", &["cuda"]))]);
        let there = Place { agent: "b".into(), device: "webgpu".into() };
        assert_eq!(r.find(&there).unwrap().location, Location::Away("ws://h2".into()));
        assert!(r.find_local(&there).is_none() && r.row("b").is_none());
        let names: Vec<String> = r.list(|_| 0).into_iter().map(|offer| offer.name).collect();
        assert_eq!(names, ["a/vulkan", "b/webgpu"], "an agent that is here is not taken from there");
        r.set_remote(Vec::new());
        assert_eq!(r.list(|_| 0).len(), 1, "the other hub has gone");
    }

    #[test]
    fn operators_are_listed_by_name_and_counted() {
        let mut r = Registry::default();
        let op = |i: usize| ServedOp { name: format!("op{i}"), version: "7".into(), ..ServedOp::default() };
        let with = |name: &str, count: usize| {
            let mut agent = agent(name, &["npu"]);
            agent.devices[0].info.as_mut().unwrap().ops = (0..count).map(op).collect();
            agent
        };
        r.register(1, with("a", 2)).unwrap();
        let listed = r.list(|_| 0)[0].info.clone().unwrap().ops;
        assert_eq!(listed[1], ServedOp { name: "op1".into(), ..ServedOp::default() });
        assert!(r.register(2, with("b", OPERATORS - 1)).is_err());
        assert!(r.register(2, with("b", OPERATORS - 2)).is_ok());
        assert!(r.register(1, with("a", 2)).is_ok(), "an agent replaces what it offered");
    }

    #[test]
    fn an_emulator_is_shared_and_a_device_may_say_how_much() {
        let mut cpu = offer("emulator");
        cpu.info.as_mut().unwrap().set_kind(AdapterKind::Cpu);
        assert_eq!((sessions(&cpu), sessions(&offer("vulkan"))), (SHARED, 1));
        cpu.sessions = u32::MAX;
        assert_eq!(sessions(&cpu), SESSIONS);
    }

    #[test]
    fn a_device_that_could_not_be_opened_is_listed_and_takes_no_session() {
        let mut r = Registry::default();
        let mut broken = agent("a", &["vulkan", "cuda"]);
        broken.devices[1].info = None;
        r.register(1, Register { sessions: 3, ..broken }).unwrap();
        let devices = vec![DeviceCapacity { device: "vulkan".into(), sessions: 1 }];
        assert_eq!(r.capacities()["a"], Capacity { sessions: 3, devices });
        assert_eq!(r.list(|place| u32::from(place.device == "cuda"))[1].busy, 1);
        assert!(r.find(&Place { agent: "a".into(), device: "cuda".into() }).is_none());
    }
}
