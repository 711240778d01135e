//! Leases: who has which device until when, and who waits for one. A state machine without sockets and without a clock: every
//! call that depends on time says what time it is.
//!
//! A client enters the queue, is granted a device, renews its claim while it is there, gives the device back, and leaves. Who
//! does not renew in time has left: [`Leases::advance`] tells of it.

#[cfg(test)]
mod tests;

use super::device_request::{DeviceRequest, Place};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

/// How long an agent is left alone that had no place for a session.
const REST: Duration = Duration::from_millis(500);

/// How long a client that waits may be silent: its computer may have been asleep.
pub const WAIT_TERM: Duration = crate::wire::limits::ASLEEP;

/// How long a lease lasts that is not renewed. A relay renews it every second, unless both its directions are held up.
pub const LEASE_TERM: Duration = Duration::from_secs(120);

/// Longest time between two calls that counts in full. In longer ones the hub itself did not run, and nobody could renew.
const GAP: Duration = Duration::from_secs(5);

/// How many sessions an agent takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Of all devices together.
    pub sessions: u32,
    /// Of each device, in the agent's order.
    pub devices: Vec<DeviceCapacity>,
}

/// How many sessions a device takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCapacity {
    /// The device's name at its agent.
    pub device: String,
    /// So many at once.
    pub sessions: u32,
}

/// What decides who is served before whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    priority: Reverse<i32>,
    /// Milliseconds since 1970: the hubs' clocks decide between clients of several hubs.
    since: u64,
    /// Its hub; empty for this one.
    hub: String,
    id: u64,
}

/// A client that waits at another hub.
#[derive(Clone, Debug)]
pub struct RemoteWaiter {
    /// Its hub.
    pub hub: String,
    /// Its number there.
    pub id: u64,
    /// What it asks for.
    pub request: DeviceRequest,
    /// Clients of higher priority are served first.
    pub priority: i32,
    /// When it came, milliseconds since 1970.
    pub since: u64,
}

/// A client of this hub.
struct Client {
    request: DeviceRequest,
    rank: Rank,
    /// Devices that have refused it.
    refused: HashSet<Place>,
    /// The device that it has.
    held: Option<Place>,
    /// When it has left unless it renews.
    until: Instant,
}

/// A client in the queue, of this hub or another one.
struct Waiter<'a> {
    rank: &'a Rank,
    request: &'a DeviceRequest,
    refused: Option<&'a HashSet<Place>>,
}

/// How a client stands in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// Its place, from 1, among those who could take what it could take; 0 if it does not wait.
    pub place: u32,
    /// Devices that suit, free or not.
    pub devices: u32,
}

/// A client whose time is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// Its number.
    pub id: u64,
    /// The device that it had.
    pub held: Option<Place>,
}

/// See the module.
#[derive(Default)]
pub struct Leases {
    agents: BTreeMap<String, Capacity>,
    clients: BTreeMap<u64, Client>,
    remote_held: Vec<Place>,
    remote_waiting: Vec<(Rank, DeviceRequest)>,
    /// When a device was last granted.
    used: BTreeMap<Place, Instant>,
    /// Until when agents are not asked.
    resting: BTreeMap<String, Instant>,
    /// When [`Leases::advance`] was last called.
    advanced: Option<Instant>,
    last_id: u64,
}

impl Client {
    fn renew(&mut self, now: Instant) {
        self.until = now + if self.held.is_some() { LEASE_TERM } else { WAIT_TERM };
    }
}

impl Waiter<'_> {
    fn takes(&self, place: &Place) -> bool {
        self.request.suits(place) && self.refused.is_none_or(|refused| !refused.contains(place))
    }
}

impl Leases {
    /// Says which agents there are. A lease of a device that is there no more stays until its client gives it back: the agent may
    /// come back, and its open sessions count.
    pub fn set_agents(&mut self, agents: BTreeMap<String, Capacity>) {
        self.used.retain(|place, _| agents.contains_key(&place.agent));
        self.resting.retain(|agent, _| agents.contains_key(agent));
        self.agents = agents;
    }

    /// Says what the clients of other hubs have, and who waits there.
    pub fn set_remote(&mut self, held: Vec<Place>, waiting: Vec<RemoteWaiter>) {
        let waiter = |RemoteWaiter { hub, id, request, priority, since }| {
            (Rank { priority: Reverse(priority), since, hub, id }, request)
        };
        self.remote_held = held;
        self.remote_waiting = waiting.into_iter().map(waiter).collect();
    }

    /// Puts a client into the queue; its number. `since` is when it came, in milliseconds since 1970.
    pub fn enqueue(&mut self, request: DeviceRequest, priority: i32, since: u64, now: Instant) -> u64 {
        self.last_id += 1;
        let rank = Rank { priority: Reverse(priority), since, hub: String::new(), id: self.last_id };
        let client = Client { request, rank, refused: HashSet::new(), held: None, until: now + WAIT_TERM };
        self.clients.insert(self.last_id, client);
        self.last_id
    }

    /// Grants a waiting client a device, if one is free that nobody before it can take. It keeps its rank: who gives the device back
    /// waits where it has waited before.
    pub fn grant(&mut self, id: u64, now: Instant) -> Option<Place> {
        let place = self.allot(now).remove(&id)?;
        let client = self.clients.get_mut(&id)?;
        client.held = Some(place.clone());
        client.renew(now);
        self.used.insert(place.clone(), now);
        Some(place)
    }

    /// A client is there. False if its time is over, or if it has left.
    pub fn renew(&mut self, id: u64, now: Instant) -> bool {
        let client = self.clients.get_mut(&id).filter(|client| now < client.until);
        client.map(|client| client.renew(now)).is_some()
    }

    /// A client gives its device back, and waits on.
    pub fn give_back(&mut self, id: u64, now: Instant) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.held = None;
            client.renew(now);
        }
    }

    /// A device shall not be granted to this client again.
    pub fn exclude(&mut self, id: u64, place: &Place) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.refused.insert(place.clone());
        }
    }

    /// A client neither waits nor has a device any more.
    pub fn leave(&mut self, id: u64) {
        self.clients.remove(&id);
    }

    /// An agent had no place for a session: its devices are granted again a little later.
    pub fn rest(&mut self, agent: &str, now: Instant) {
        self.resting.insert(agent.into(), now + REST);
    }

    /// Time goes on: who has not renewed in time has left, and is told. Time in which nobody called does not count.
    pub fn advance(&mut self, now: Instant) -> Vec<Expired> {
        let passed = self.advanced.map_or(Duration::ZERO, |before| now.saturating_duration_since(before));
        self.advanced = Some(now);
        if passed > GAP {
            self.clients.values_mut().for_each(|client| client.until += passed);
        }
        self.resting.retain(|_, until| now < *until);
        let over = self.clients.iter().filter(|(_, client)| client.until <= now);
        let over: Vec<Expired> =
            over.map(|(id, client)| Expired { id: *id, held: client.held.clone() }).collect();
        over.iter().for_each(|expired| self.leave(expired.id));
        over
    }

    /// How a client stands.
    pub fn position(&self, id: u64) -> QueuePosition {
        let line = self.line();
        let Some(at) = line.iter().position(|w| w.rank.id == id && w.rank.hub.is_empty()) else {
            return QueuePosition { place: 0, devices: 0 };
        };
        let own: Vec<Place> = self.places().map(|(place, _)| place).filter(|p| line[at].takes(p)).collect();
        let before = line[..at].iter().filter(|w| own.iter().any(|p| w.takes(p))).count();
        QueuePosition { place: before as u32 + 1, devices: own.len() as u32 }
    }

    /// How many sessions a device has.
    pub fn busy(&self, place: &Place) -> u32 {
        self.held_devices().filter(|held| *held == place).count() as u32
    }

    fn held_devices(&self) -> impl Iterator<Item = &Place> {
        self.clients.values().filter_map(|client| client.held.as_ref()).chain(&self.remote_held)
    }

    /// Every device and how many sessions it takes.
    fn places(&self) -> impl Iterator<Item = (Place, u32)> {
        self.agents.iter().flat_map(|(agent, capacity)| {
            let place = |device: &DeviceCapacity| {
                (Place { agent: agent.clone(), device: device.device.clone() }, device.sessions)
            };
            capacity.devices.iter().map(place)
        })
    }

    /// All who wait for a device and have none, in the order in which they are served.
    fn line(&self) -> Vec<Waiter<'_>> {
        let own = self.clients.values().filter(|client| client.held.is_none());
        let own = own.map(|c| Waiter { rank: &c.rank, request: &c.request, refused: Some(&c.refused) });
        let remote =
            self.remote_waiting.iter().map(|(rank, request)| Waiter { rank, request, refused: None });
        let mut line: Vec<Waiter<'_>> = own.chain(remote).collect();
        line.sort_by_key(|waiter| waiter.rank);
        line
    }

    /// How many more sessions an agent takes.
    fn sessions_left(&self, agent: &str, capacity: &Capacity, now: Instant) -> u32 {
        if self.resting.get(agent).is_some_and(|until| now < *until) {
            return 0;
        }
        let busy = self.held_devices().filter(|held| held.agent == agent).count();
        capacity.sessions.saturating_sub(busy as u32)
    }

    /// Who gets what: in the order of the queue, each the device with the most room that was used the longest ago.
    fn allot(&self, now: Instant) -> BTreeMap<u64, Place> {
        let left =
            |(name, capacity): (&String, &Capacity)| (name.clone(), self.sessions_left(name, capacity, now));
        let mut left: BTreeMap<String, u32> = self.agents.iter().map(left).collect();
        let room = |(place, sessions): (Place, u32)| {
            let room = sessions.saturating_sub(self.busy(&place)).min(left[&place.agent]);
            (room > 0).then_some((place, room))
        };
        let mut free: Vec<(Place, u32)> = self.places().filter_map(room).collect();
        free.sort_by_key(|(place, room)| (Reverse(*room), self.used.get(place).copied()));
        let mut allotted = BTreeMap::new();
        for waiter in self.line() {
            let Some(at) = free.iter().position(|(place, _)| waiter.takes(place)) else { continue };
            let place = free[at].0.clone();
            free[at].1 -= 1;
            let full = left.get_mut(&place.agent).is_none_or(|left| {
                *left -= 1;
                *left == 0
            });
            free.retain(|(other, room)| *room > 0 && !(full && other.agent == place.agent));
            if waiter.rank.hub.is_empty() {
                allotted.insert(waiter.rank.id, place);
            }
        }
        allotted
    }
}
