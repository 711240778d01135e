//! What a hub knows: agents and their devices, who has leased one, who waits for one.

mod device_request;
mod queue;

pub use device_request::{DeviceRequest, Place};

use super::shared::{AgentRow, LeaseRow, Rows, WaitRow};
use crate::wire::limits::MAX_LABEL;
use crate::wire::{AdapterKind, Offer, Register, ServedOp};
use device_request::WORDS;
use queue::Waiter;
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind, Result};

/// Most agents at once.
const AGENTS: usize = 1024;

/// Most devices of all agents: a list of them is one message.
const DEVICES: usize = 4096;

/// Most operators of all devices, for the same reason.
const OPERATORS: usize = 8192;

/// Most sessions that one device may say to take.
const SESSIONS: u32 = 64;

/// How long an agent is left alone that had no place for a session.
const REST: Duration = Duration::from_millis(500);

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
    /// Until when it is not asked again: it had no place for a session.
    rests: Option<Instant>,
}

/// A device that a client has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
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
    leases: BTreeMap<u64, Place>,
    waiting: Vec<Waiter>,
    /// What the clients of other hubs have, and who waits there.
    away_leases: Vec<Place>,
    away_waiting: Vec<Waiter>,
    /// When a device was last leased.
    used: BTreeMap<Place, Instant>,
    next: u64,
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
        if old.is_some_and(|old| old.location != Location::Here(connection) && old.instance != asked.instance)
        {
            let text = format!("another agent is named `{name}`");
            return Err(Error::new(ErrorKind::Unavailable, text).with_hint("give the agent another name"));
        }
        if old.is_none() && self.agents.len() >= AGENTS {
            return Err(Error::new(ErrorKind::Unavailable, format!("the hub has {AGENTS} agents already")));
        }
        let others = self.agents.iter().filter(|(other, _)| **other != name);
        let devices = others.map(|(_, agent)| agent.devices.len()).sum::<usize>() + asked.devices.len();
        if devices > DEVICES {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!("the hub knows no more than {DEVICES} devices"),
            ));
        }
        let others = self.agents.iter().filter(|(other, _)| **other != name);
        let operators = others.map(|(_, agent)| operators(&agent.devices)).sum::<usize>();
        if operators + self::operators(&asked.devices) > OPERATORS {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!("the hub knows no more than {OPERATORS} operators of devices that run them"),
            ));
        }
        let before = match old.map(|old| &old.location) {
            Some(Location::Here(old)) if *old != connection => Some(*old),
            _ => None,
        };
        let home = Location::Here(connection);
        let mut agent = Agent::new(home, asked);
        // A list tells which operators a device has, a session what it takes.
        let infos = agent.devices.iter_mut().filter_map(|d| d.info.as_mut());
        infos.flat_map(|info| &mut info.ops).for_each(|op| {
            *op = ServedOp { name: std::mem::take(&mut op.name), ..ServedOp::default() };
        });
        self.agents.insert(name.clone(), agent);
        Ok((name, before))
    }

    fn free_name(&self, instance: &str) -> String {
        let own = self.agents.iter().find(|(name, a)| name.starts_with("agent-") && a.instance == instance);
        if let Some((name, _)) = own {
            return name.clone();
        }
        let mut names = (1..).map(|n| format!("agent-{n}"));
        names.find(|name| !self.agents.contains_key(name)).unwrap_or_default()
    }

    /// The agent of this connection is gone; its name, if it had not been replaced.
    pub fn leave(&mut self, connection: u64) -> Option<String> {
        let home = Location::Here(connection);
        let name =
            self.agents.iter().find(|(_, agent)| agent.location == home).map(|(name, _)| name.clone())?;
        self.agents.remove(&name);
        let Registry { used, agents, .. } = self;
        used.retain(|place, _| agents.contains_key(&place.agent));
        Some(name)
    }

    /// Whether the agent of a lease is where it was.
    pub fn has(&self, home: &Location) -> bool {
        self.agents.values().any(|agent| agent.location == *home)
    }

    /// A device of an agent that is here, without a lease.
    pub fn find_local(&self, place: &Place) -> Option<Lease> {
        let agent =
            self.agents.get(&place.agent).filter(|agent| matches!(agent.location, Location::Here(_)))?;
        let offer = agent.devices.iter().find(|offer| offer.name == place.device && offer.info.is_some())?;
        Some(agent.lease(place, agent.sessions_of(offer)))
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

    /// Takes over what the other hubs have: their agents, their clients' leases, who waits there.
    pub fn update_remote(&mut self, rows: Rows) {
        self.agents.retain(|_, agent| matches!(agent.location, Location::Here(_)));
        for AgentRow { url, register, .. } in rows.agents {
            let Some(r) = register else { continue };
            let (name, agent) = (r.name.clone(), Agent::new(Location::Away(url), r));
            // An agent of this hub's own that has moved is found out by its connection.
            self.agents.entry(name).or_insert(agent);
        }
        let place = |LeaseRow { agent, device, .. }| Place { agent, device };
        self.away_leases = rows.leases.into_iter().map(place).collect();
        let waiter = |WaitRow { hub, waiter, target, priority, since }| Waiter {
            id: waiter,
            hub,
            request: DeviceRequest::parse(&target),
            priority,
            since,
            not: HashSet::new(),
        };
        self.away_waiting = rows.waiting.into_iter().map(waiter).collect();
    }

    /// All devices under the names that clients ask for, with their state.
    pub fn list(&self) -> Vec<Offer> {
        let of = |(name, agent): (&String, &Agent)| {
            let named = |offer: &Offer| {
                let place = Place { agent: name.clone(), device: offer.name.clone() };
                let busy = self.busy(&place);
                let (name, sessions) = (place.to_string(), agent.sessions_of(offer));
                Offer { name, agent: agent.agent.clone(), busy, sessions, ..offer.clone() }
            };
            agent.devices.iter().map(named).collect::<Vec<_>>()
        };
        self.agents.iter().flat_map(of).collect()
    }

    /// Every usable device and how many more sessions it takes.
    fn places(&self) -> Vec<(Place, u32)> {
        let of = |(name, agent): (&String, &Agent)| {
            let usable = agent.devices.iter().filter(|offer| offer.info.is_some());
            let left = self.sessions_left(name, agent);
            let room = |offer: &Offer| {
                let place = Place { agent: name.clone(), device: offer.name.clone() };
                let room = sessions(offer).saturating_sub(self.busy(&place)).min(left);
                (place, room)
            };
            usable.map(room).collect::<Vec<_>>()
        };
        self.agents.iter().flat_map(of).collect()
    }

    fn leased_devices(&self) -> impl Iterator<Item = &Place> {
        self.leases.values().chain(&self.away_leases)
    }

    fn busy(&self, place: &Place) -> u32 {
        self.leased_devices().filter(|leased| *leased == place).count() as u32
    }

    /// How many more sessions an agent takes.
    fn sessions_left(&self, name: &str, agent: &Agent) -> u32 {
        if agent.rests.is_some_and(|until| Instant::now() < until) {
            return 0;
        }
        let busy = self.leased_devices().filter(|leased| leased.agent == name).count();
        agent.sessions.saturating_sub(busy as u32)
    }

    /// An agent had no place for a session: it is asked again a little later.
    pub fn rest(&mut self, name: &str) {
        if let Some(agent) = self.agents.get_mut(name) {
            agent.rests = Some(Instant::now() + REST);
        }
    }
}

impl Agent {
    fn new(home: Location, register: Register) -> Agent {
        let Register { instance, agent, devices, sessions, .. } = register;
        let sessions = if sessions == 0 { u32::MAX } else { sessions };
        Agent { location: home, instance, agent, devices, sessions, rests: None }
    }

    fn sessions_of(&self, offer: &Offer) -> u32 {
        sessions(offer).min(self.sessions)
    }

    fn lease(&self, place: &Place, sessions: u32) -> Lease {
        let (home, agent) = (self.location.clone(), self.agent.clone());
        Lease { place: place.clone(), location: home, agent, sessions }
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
    use super::queue::QueuePosition;
    use super::*;
    use crate::wire::DeviceInfo;

    fn offer(name: &str) -> Offer {
        let info = DeviceInfo { platform: "vulkan".into(), ..Default::default() };
        Offer { name: name.into(), info: Some(info), ..Default::default() }
    }

    pub(super) fn agent(name: &str, devices: &[&str]) -> Register {
        let devices = devices.iter().map(|d| offer(d)).collect();
        Register { name: name.into(), instance: name.into(), devices, ..Default::default() }
    }

    pub(super) fn leased_devices(registry: &mut Registry, id: u64) -> Option<String> {
        registry.lease(id).map(|lease| lease.place.to_string())
    }

    #[test]
    fn an_agent_comes_back_to_its_name_and_nobody_else_takes_it() {
        let mut r = Registry::default();
        assert_eq!(r.register(1, agent("a", &["vulkan"])).unwrap(), ("a".into(), None));
        let stranger = Register { instance: "other".into(), ..agent("a", &[]) };
        assert!(r.register(2, stranger).is_err());
        let id = r.enqueue(DeviceRequest::parse("a"), 0);
        r.lease(id).unwrap();
        assert_eq!(r.register(3, agent("a", &["vulkan"])).unwrap(), ("a".into(), Some(1)));
        assert_eq!(r.leave(1), None);
        assert!(r.has(&Location::Here(3)), "the old connection's end is not the agent's");
        assert_eq!(r.list()[0].busy, 1, "its open sessions count on");
        assert!(r.register(4, agent("vulkan", &[])).is_err());
        let nameless = |instance: &str| Register { instance: instance.into(), ..agent("", &["vulkan"]) };
        assert_eq!(r.register(5, nameless("x")).unwrap().0, "agent-1");
        assert_eq!(r.register(6, nameless("y")).unwrap().0, "agent-2");
        assert_eq!(r.register(7, nameless("x")).unwrap(), ("agent-1".into(), Some(5)));
    }

    #[test]
    fn several_hubs_have_one_queue() {
        let mut r = Registry::default();
        r.register(1, agent("a", &["vulkan"])).unwrap();
        let away =
            AgentRow { hub: "h2".into(), url: "ws://h2".into(), register: Some(agent("b", &["webgpu"])) };
        let wait = |target: &str, since| WaitRow {
            hub: "h2".into(),
            waiter: 1,
            target: target.into(),
            priority: 0,
            since,
        };
        let own = r.enqueue(DeviceRequest::parse("vulkan"), 0);
        r.update_remote(Rows { agents: vec![away.clone()], leases: Vec::new(), waiting: vec![wait("a", 1)] });
        assert_eq!((r.queue_position(own), r.lease(own)), (QueuePosition { place: 2, devices: 1 }, None));
        r.update_remote(Rows {
            agents: vec![away.clone()],
            leases: Vec::new(),
            waiting: vec![wait("a", u64::MAX)],
        });
        assert_eq!(leased_devices(&mut r, own).as_deref(), Some("a/vulkan"));
        let far = r.enqueue(DeviceRequest::parse("webgpu"), 0);
        let there = LeaseRow { hub: "h2".into(), waiter: 2, agent: "b".into(), device: "webgpu".into() };
        r.update_remote(Rows { agents: vec![away.clone()], leases: vec![there], waiting: Vec::new() });
        assert_eq!(r.lease(far), None, "a client of the other hub has it");
        r.update_remote(Rows { agents: vec![away], ..Rows::default() });
        assert_eq!(r.lease(far).unwrap().location, Location::Away("ws://h2".into()));
        assert!(r.find_local(&Place { agent: "b".into(), device: "webgpu".into() }).is_none());
        r.update_remote(Rows::default());
        assert_eq!(r.list().len(), 1, "the other hub has gone");
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
        let listed = r.list()[0].info.clone().unwrap().ops;
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
}
