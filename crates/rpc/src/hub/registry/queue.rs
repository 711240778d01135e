//! The queue: who waits for a device, in which order, and who gets which.

use super::{DeviceRequest, Lease, Place, Registry};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::time::{Instant, SystemTime};

/// A client that waits.
pub(super) struct Waiter {
    pub(super) id: u64,
    /// Its hub; empty for this one.
    pub(super) hub: String,
    pub(super) request: DeviceRequest,
    pub(super) priority: i32,
    /// When it came, milliseconds since 1970: the hubs' clocks decide between clients of several hubs.
    pub(super) since: u64,
    /// Devices that have refused this client.
    pub(super) not: HashSet<Place>,
}

/// A waiting client's prospects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// Its place in the queue, from 1, among those who could take what it could take.
    pub place: u32,
    /// Devices that suit, free or not.
    pub devices: u32,
}

impl Waiter {
    fn takes(&self, place: &Place) -> bool {
        self.request.suits(place) && !self.not.contains(place)
    }
}

impl Registry {
    /// Puts a client into the queue.
    pub fn enqueue(&mut self, want: DeviceRequest, priority: i32) -> u64 {
        self.next += 1;
        let since = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_millis() as u64);
        let waiter =
            Waiter { id: self.next, hub: String::new(), request: want, priority, since, not: HashSet::new() };
        self.waiting.push(waiter);
        self.next
    }

    /// When a client came, for other hubs.
    pub fn waiting_since(&self, id: u64) -> u64 {
        self.waiting.iter().find(|w| w.id == id).map_or(0, |w| w.since)
    }

    /// All who wait for a device and have none, in the order in which they are served.
    fn line(&self) -> Vec<&Waiter> {
        let own = self.waiting.iter().filter(|w| !self.leases.contains_key(&w.id));
        let mut line: Vec<&Waiter> = own.chain(&self.away_waiting).collect();
        line.sort_by_key(|w| (Reverse(w.priority), w.since, &w.hub, w.id));
        line
    }

    /// Takes a client out of the queue.
    pub fn dequeue(&mut self, id: u64) {
        self.waiting.retain(|w| w.id != id);
    }

    /// A device shall not be given to this client again.
    pub fn exclude(&mut self, id: u64, place: &Place) {
        if let Some(waiter) = self.waiting.iter_mut().find(|w| w.id == id) {
            waiter.not.insert(place.clone());
        }
    }

    /// Leases a device to a waiting client if one is free that nobody before it can take. It stays in the queue until it
    /// has what it wants: [`Registry::dequeue`].
    pub fn lease(&mut self, id: u64) -> Option<Lease> {
        let place = self.allot().into_iter().find(|(waiter, _)| *waiter == id)?.1;
        let agent = self.agents.get(&place.agent)?;
        let offer = agent.devices.iter().find(|offer| offer.name == place.device)?;
        let lease = agent.lease(&place, agent.sessions_of(offer));
        self.leases.insert(id, lease.place.clone());
        self.used.insert(lease.place.clone(), Instant::now());
        Some(lease)
    }

    /// A client gives its device back.
    pub fn release(&mut self, id: u64) {
        self.leases.remove(&id);
    }

    /// How a waiting client stands.
    pub fn queue_position(&self, id: u64) -> QueuePosition {
        let all = self.places();
        let line = self.line();
        let Some(at) = line.iter().position(|w| w.id == id && w.hub.is_empty()) else {
            return QueuePosition { place: 0, devices: 0 };
        };
        let own: Vec<&Place> = all.iter().map(|(place, _)| place).filter(|p| line[at].takes(p)).collect();
        let before = line[..at].iter().filter(|w| own.iter().any(|p| w.takes(p))).count();
        QueuePosition { place: before as u32 + 1, devices: own.len() as u32 }
    }

    /// Who gets what: in the order of the queue, each the device with the most room that was used the longest ago.
    fn allot(&self) -> Vec<(u64, Place)> {
        let mut free = self.places();
        free.retain(|(_, room)| *room > 0);
        free.sort_by_key(|(place, room)| (u32::MAX - room, self.used.get(place).copied()));
        let mut left: BTreeMap<&str, u32> = self
            .agents
            .iter()
            .map(|(name, agent)| (name.as_str(), self.sessions_left(name, agent)))
            .collect();
        let mut allotted = Vec::new();
        for waiter in self.line() {
            let Some(at) = free.iter().position(|(place, _)| waiter.takes(place)) else { continue };
            let place = free[at].0.clone();
            free[at].1 -= 1;
            let left = left.get_mut(place.agent.as_str());
            let full = left.is_none_or(|left| {
                *left -= 1;
                *left == 0
            });
            free.retain(|(other, room)| *room > 0 && !(full && other.agent == place.agent));
            if waiter.hub.is_empty() {
                allotted.push((waiter.id, place));
            }
        }
        allotted
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{agent, leased_devices};
    use super::*;

    #[test]
    fn the_queue_goes_by_priority_and_then_by_arrival() {
        let mut r = Registry::default();
        r.register(1, agent("a", &["vulkan"])).unwrap();
        let first = r.enqueue(DeviceRequest::parse("vulkan"), 0);
        assert_eq!(leased_devices(&mut r, first).as_deref(), Some("a/vulkan"));
        r.dequeue(first);
        let [late, low, high] = [0, -1, 5].map(|p| r.enqueue(DeviceRequest::parse("a"), p));
        let later = r.enqueue(DeviceRequest::parse("vulkan"), 0);
        let other = r.enqueue(DeviceRequest::parse("webgpu"), 9);
        let place = |r: &Registry, id| r.queue_position(id).place;
        assert_eq!([high, late, later, low, other].map(|id| place(&r, id)), [1, 2, 3, 4, 1]);
        assert_eq!((r.queue_position(low).devices, r.queue_position(other).devices), (1, 0));
        assert_eq!([high, late].map(|id| leased_devices(&mut r, id)), [None, None], "it is leased");
        r.release(first);
        assert_eq!(leased_devices(&mut r, late), None, "another comes first");
        assert_eq!(leased_devices(&mut r, high).as_deref(), Some("a/vulkan"));
        r.dequeue(high);
        r.release(high);
        r.dequeue(late);
        assert_eq!(leased_devices(&mut r, later).as_deref(), Some("a/vulkan"));
    }

    #[test]
    fn who_comes_first_does_not_block_whom_it_does_not_rival() {
        let mut r = Registry::default();
        r.register(1, agent("a", &["vulkan", "webgpu"])).unwrap();
        r.register(2, agent("b", &["vulkan"])).unwrap();
        let picky = r.enqueue(DeviceRequest::parse("a/vulkan"), 0);
        let any = r.enqueue(DeviceRequest::parse("vulkan"), 0);
        assert_eq!(
            leased_devices(&mut r, any).as_deref(),
            Some("b/vulkan"),
            "the other one is meant for somebody"
        );
        assert_eq!(leased_devices(&mut r, picky).as_deref(), Some("a/vulkan"));
        assert_eq!(r.list().iter().map(|o| o.busy).collect::<Vec<_>>(), [1, 0, 1]);
    }

    #[test]
    fn a_device_that_refused_is_not_tried_again() {
        let mut r = Registry::default();
        r.register(1, agent("a", &["vulkan"])).unwrap();
        let id = r.enqueue(DeviceRequest::parse("vulkan"), 0);
        let lease = r.lease(id).unwrap();
        r.exclude(id, &lease.place);
        r.release(id);
        assert_eq!((r.lease(id), r.queue_position(id).devices), (None, 0));
        r.register(2, agent("b", &["vulkan"])).unwrap();
        assert_eq!(leased_devices(&mut r, id).as_deref(), Some("b/vulkan"));
    }
}
