//! Leases that are granted, waited for, renewed, expired and given back, on a clock that is set by hand.

use super::*;

/// Leases of agents with one session of each device, and a clock that is set by hand.
struct Hub {
    leases: Leases,
    agents: BTreeMap<String, Capacity>,
    now: Instant,
}

impl Hub {
    fn new(agents: &[(&str, &[&str])]) -> Hub {
        let mut hub = Hub { leases: Leases::default(), agents: BTreeMap::new(), now: Instant::now() };
        agents.iter().for_each(|(name, devices)| hub.agent(name, u32::MAX, devices));
        hub.pass(Duration::ZERO);
        hub
    }

    fn agent(&mut self, name: &str, sessions: u32, devices: &[&str]) {
        let device = |device: &&str| DeviceCapacity { device: device.to_string(), sessions: 1 };
        let capacity = Capacity { sessions, devices: devices.iter().map(device).collect() };
        self.agents.insert(name.into(), capacity);
        self.leases.set_agents(self.agents.clone());
    }

    fn lose(&mut self, name: &str) {
        self.agents.remove(name);
        self.leases.set_agents(self.agents.clone());
    }

    fn enqueue(&mut self, request: &str, priority: i32) -> u64 {
        self.leases.enqueue(DeviceRequest::parse(request), priority, 7, self.now)
    }

    fn grant(&mut self, id: u64) -> Option<String> {
        self.leases.grant(id, self.now).map(|place| place.to_string())
    }

    /// A client gives its device back and leaves.
    fn end(&mut self, id: u64) {
        self.leases.give_back(id, self.now);
        self.leases.leave(id);
    }

    fn busy(&self, place: &str) -> u32 {
        self.leases.busy(&place_of(place))
    }

    /// Time passes in steps of a second, as in a hub that runs; who has left meanwhile.
    fn pass(&mut self, time: Duration) -> Vec<Expired> {
        let until = self.now + time;
        let mut lost = Vec::new();
        loop {
            lost.extend(self.leases.advance(self.now));
            if self.now == until {
                return lost;
            }
            self.now = until.min(self.now + Duration::from_secs(1));
        }
    }
}

fn place_of(place: &str) -> Place {
    let (agent, device) = place.split_once('/').unwrap();
    Place { agent: agent.into(), device: device.into() }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_free_device_is_granted_and_one_that_is_held_is_not() {
    let mut hub = Hub::new(&[("a", &["vulkan"])]);
    let first = hub.enqueue("vulkan", 0);
    assert_eq!(hub.leases.position(first), QueuePosition { place: 1, devices: 1 });
    assert_eq!(hub.grant(first).as_deref(), Some("a/vulkan"));
    assert_eq!((hub.busy("a/vulkan"), hub.grant(first)), (1, None), "nobody gets two");
    assert_eq!(hub.leases.position(first), QueuePosition { place: 0, devices: 0 }, "it waits no more");
    let second = hub.enqueue("vulkan", 9);
    assert_eq!(hub.grant(second), None);
    hub.end(first);
    assert_eq!(hub.grant(second).as_deref(), Some("a/vulkan"));
    assert_eq!(hub.grant(99), None, "nobody has this number");
}

#[test]
fn the_queue_goes_by_priority_and_then_by_arrival() {
    let mut hub = Hub::new(&[("a", &["vulkan"])]);
    let first = hub.enqueue("vulkan", 0);
    hub.grant(first).unwrap();
    let [late, low, high] = [0, -1, 5].map(|priority| hub.enqueue("a", priority));
    let later = hub.enqueue("vulkan", 0);
    let other = hub.enqueue("webgpu", 9);
    let place = |hub: &Hub, id| hub.leases.position(id).place;
    assert_eq!([high, late, later, low, other].map(|id| place(&hub, id)), [1, 2, 3, 4, 1]);
    let devices = [low, other].map(|id| hub.leases.position(id).devices);
    assert_eq!(devices, [1, 0]);
    hub.end(first);
    assert_eq!(hub.grant(late), None, "another comes first");
    for id in [high, late, later, low] {
        assert_eq!(hub.grant(id).as_deref(), Some("a/vulkan"));
        hub.end(id);
    }
}

#[test]
fn who_comes_first_does_not_block_whom_it_does_not_rival() {
    let mut hub = Hub::new(&[("a", &["vulkan", "webgpu"]), ("b", &["vulkan"])]);
    let picky = hub.enqueue("a/vulkan", 0);
    let any = hub.enqueue("vulkan", 0);
    assert_eq!(hub.grant(any).as_deref(), Some("b/vulkan"), "the other one is meant for somebody");
    assert_eq!(hub.grant(picky).as_deref(), Some("a/vulkan"));
    assert_eq!(["a/vulkan", "a/webgpu", "b/vulkan"].map(|place| hub.busy(place)), [1, 0, 1]);
}

#[test]
fn of_free_devices_the_one_used_the_longest_ago_is_granted() {
    let mut hub = Hub::new(&[("a", &["vulkan"]), ("b", &["vulkan"])]);
    let mut granted = Vec::new();
    for _ in 0..4 {
        let id = hub.enqueue("vulkan", 0);
        granted.extend(hub.grant(id));
        hub.end(id);
        hub.pass(SECOND);
    }
    assert_eq!(granted, ["a/vulkan", "b/vulkan", "a/vulkan", "b/vulkan"]);
}

#[test]
fn an_agents_sessions_bound_those_of_its_devices() {
    let mut hub = Hub::new(&[]);
    hub.agent("a", 1, &["vulkan", "webgpu"]);
    let [one, two] = ["a/vulkan", "a/webgpu"].map(|request| hub.enqueue(request, 0));
    assert_eq!(hub.grant(two), None, "the only session is meant for who came first");
    assert_eq!(hub.grant(one).as_deref(), Some("a/vulkan"));
    assert_eq!((hub.grant(two), hub.leases.position(two).devices), (None, 1));
    hub.end(one);
    assert_eq!(hub.grant(two).as_deref(), Some("a/webgpu"));
}

#[test]
fn who_gives_a_device_back_waits_where_it_has_waited() {
    let mut hub = Hub::new(&[("a", &["vulkan"])]);
    let [one, two] = [0, 0].map(|priority| hub.enqueue("vulkan", priority));
    hub.grant(one).unwrap();
    hub.leases.give_back(one, hub.now);
    assert_eq!([one, two].map(|id| hub.leases.position(id).place), [1, 2]);
    assert_eq!((hub.grant(two), hub.grant(one).as_deref()), (None, Some("a/vulkan")));
}

#[test]
fn a_device_that_refused_is_not_granted_again() {
    let mut hub = Hub::new(&[("a", &["vulkan"])]);
    let id = hub.enqueue("vulkan", 0);
    hub.grant(id).unwrap();
    hub.leases.exclude(id, &place_of("a/vulkan"));
    hub.leases.give_back(id, hub.now);
    assert_eq!((hub.grant(id), hub.leases.position(id).devices), (None, 0));
    let other = hub.enqueue("vulkan", 0);
    assert_eq!(hub.grant(other).as_deref(), Some("a/vulkan"), "others may have it");
    hub.agent("b", 1, &["vulkan"]);
    assert_eq!(hub.grant(id).as_deref(), Some("b/vulkan"));
}

#[test]
fn an_agent_that_had_no_place_rests_a_little() {
    let mut hub = Hub::new(&[("a", &["vulkan"])]);
    let id = hub.enqueue("vulkan", 0);
    hub.leases.rest("a", hub.now);
    assert_eq!((hub.grant(id), hub.leases.position(id).devices), (None, 1), "it counts as a device");
    hub.pass(REST);
    assert_eq!(hub.grant(id).as_deref(), Some("a/vulkan"));
}

#[test]
fn a_lease_that_is_renewed_lasts_and_one_that_is_not_expires() {
    let mut hub = Hub::new(&[("a", &["vulkan"]), ("b", &["vulkan"])]);
    let [there, gone] = [0, 0].map(|priority| hub.enqueue("vulkan", priority));
    assert!([there, gone].map(|id| hub.grant(id)).iter().all(Option::is_some));
    assert!(hub.pass(LEASE_TERM - SECOND).is_empty());
    assert!(hub.leases.renew(there, hub.now));
    let held = Some(place_of("b/vulkan"));
    assert_eq!(hub.pass(SECOND), [Expired { id: gone, held }]);
    assert!(!hub.leases.renew(gone, hub.now), "its time is over");
    let next = hub.enqueue("vulkan", 0);
    assert_eq!(hub.grant(next).as_deref(), Some("b/vulkan"));
    assert_eq!((hub.busy("a/vulkan"), hub.leases.renew(there, hub.now)), (1, true));
}

#[test]
fn a_client_that_waits_in_silence_is_lost_and_blocks_nobody() {
    let mut hub = Hub::new(&[("a", &["vulkan"])]);
    let lost = hub.enqueue("vulkan", 5);
    assert!(hub.pass(WAIT_TERM - SECOND).is_empty());
    let next = hub.enqueue("vulkan", 0);
    assert_eq!(hub.grant(next), None, "who is silent may be back");
    assert_eq!(hub.pass(SECOND), [Expired { id: lost, held: None }]);
    assert_eq!((hub.grant(lost), hub.grant(next).as_deref()), (None, Some("a/vulkan")));
    hub.leases.leave(next);
    assert_eq!(hub.busy("a/vulkan"), 0, "a client that leaves has no device");
}

#[test]
fn time_in_which_the_hub_did_not_run_does_not_count() {
    let mut hub = Hub::new(&[("a", &["vulkan"])]);
    let [holds, waits] = [0, 0].map(|priority| hub.enqueue("vulkan", priority));
    hub.grant(holds).unwrap();
    hub.now += 10 * LEASE_TERM;
    assert!(hub.leases.advance(hub.now).is_empty());
    assert!(hub.leases.renew(holds, hub.now) && hub.leases.renew(waits, hub.now));
    let lost: Vec<u64> = hub.pass(LEASE_TERM).into_iter().map(|expired| expired.id).collect();
    assert_eq!(lost, [waits, holds], "from then on it does");
}

#[test]
fn a_lost_device_suits_nobody_and_its_open_sessions_count_when_it_is_back() {
    let mut hub = Hub::new(&[("a", &["vulkan"])]);
    let [holds, waits] = [0, 0].map(|priority| hub.enqueue("a", priority));
    hub.grant(holds).unwrap();
    hub.lose("a");
    assert_eq!((hub.grant(waits), hub.leases.position(waits).devices), (None, 0));
    hub.agent("a", 4, &["vulkan"]);
    assert_eq!((hub.grant(waits), hub.busy("a/vulkan")), (None, 1), "the session goes on");
    hub.end(holds);
    assert_eq!(hub.grant(waits).as_deref(), Some("a/vulkan"));
}

#[test]
fn several_hubs_have_one_queue() {
    let mut hub = Hub::new(&[("a", &["vulkan"]), ("b", &["webgpu"])]);
    let waiter = |priority, since| RemoteWaiter {
        hub: "h2".into(),
        id: 1,
        request: DeviceRequest::parse("a"),
        priority,
        since,
    };
    let own = hub.enqueue("vulkan", 0);
    for (priority, since) in [(0, 1), (1, u64::MAX)] {
        hub.leases.set_remote(Vec::new(), vec![waiter(priority, since)]);
        let position = hub.leases.position(own);
        assert_eq!((position, hub.grant(own)), (QueuePosition { place: 2, devices: 1 }, None));
    }
    hub.leases.set_remote(Vec::new(), vec![waiter(0, u64::MAX)]);
    assert_eq!(hub.grant(own).as_deref(), Some("a/vulkan"));
    let far = hub.enqueue("webgpu", 0);
    hub.leases.set_remote(vec![place_of("b/webgpu")], Vec::new());
    assert_eq!((hub.grant(far), hub.busy("b/webgpu")), (None, 1), "a client of the other hub has it");
    hub.leases.set_remote(Vec::new(), Vec::new());
    assert_eq!(hub.grant(far).as_deref(), Some("b/webgpu"));
}
