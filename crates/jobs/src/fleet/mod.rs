//! A fleet: the cases of a suite spread over many devices, with a matrix of what is right where. Devices may come, vanish
//! and come back; every case has its result once per lane, from a device that stayed until the result was there.
//!
//! A lane is a set of cases that shall all be run: one for the whole fleet, for each class, or for each
//! device. Work is delivered at least once and recorded at most once. Threads share the board; each device
//! has one thread.

mod board;
mod device;
mod identity;
mod queue;
mod record;
mod report;
mod setup;
mod shared;
mod worker;

pub use identity::Identity;
pub use queue::{FleetQueue, Item, Memory, Task};
pub use record::{CaseState, Member, Record, Records, encode};
pub use report::{Cell, Column, FleetReport, SCHEMA};
pub use setup::{Fleet, Spread};
pub use shared::BrokerQueue;

use crate::platform::{self, PlatformSpec};
use board::Board;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind, Result};
use tapml_kernels::Overrides;
use tapml_rpc::{Address, client};

/// How often new devices are looked for.
const LOOK: Duration = Duration::from_secs(2);

/// How long the first device may take to come.
const FIRST_DEVICE_TIMEOUT: Duration = Duration::from_secs(10);

impl Fleet<'_> {
    /// Runs the cases on all devices that the words name: `hub/webgpu` is every one of the hub, other words are one device.
    ///
    /// # Errors
    /// If no device answers, a name is unknown, or the queue's run is of another check. Failing cases are
    /// part of the report.
    pub fn run(&self, targets: &[String], work: &dyn FleetQueue) -> Result<FleetReport> {
        let start = Instant::now();
        let members = self.first(targets)?;
        if members.is_empty() {
            let text = format!("no device answers to {}", targets.join(", "));
            return Err(Error::new(ErrorKind::Unavailable, text)
                .with_hint("`tapml device list hub` shows those that there are"));
        }
        // Before anything runs: results of another driver or kernel must not be mixed in.
        identity::expect_same(self, &work.records()?, &members)?;
        let wanted = self.wanted_cases()?;
        let lanes: BTreeSet<String> = members.iter().map(|m| self.spread.lane(m)).collect();
        self.progress.stage("check", (wanted.len() * lanes.len()) as u64);
        let board = Board { wanted: &wanted, lanes: &lanes, work, reported: AtomicUsize::new(0) };
        board.put(self)?;
        let columns = self.all(targets, members, &board)?;
        let mut report = FleetReport { devices: columns, ..FleetReport::new(self.suite, self.spread) };
        report.missing = board.missing()?.into_iter().map(|(_, case)| case).collect();
        report.add(&work.records()?, self.suite);
        report.seconds = start.elapsed().as_secs_f64();
        Ok(report)
    }

    /// The devices to begin with: agents that have just lost their hub are waited for.
    fn first(&self, targets: &[String]) -> Result<Vec<Member>> {
        let until = Instant::now() + FIRST_DEVICE_TIMEOUT.min(self.wait_timeout);
        loop {
            let found = members(targets)?;
            if !found.is_empty() || Instant::now() > until {
                return Ok(found);
            }
            self.stop.check()?;
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The names of the cases to run, with their operators; the operators take turns, so that every device sees all of them.
    fn wanted_cases(&self) -> Result<Vec<(String, &'static str)>> {
        let graph = self.suite.graph();
        let known: Vec<&str> = graph.op_kinds().into_iter().map(|(name, _)| name).collect();
        if let Some(unknown) = self.ops.iter().find(|op| !known.contains(&op.as_str())) {
            return Err(Error::invalid(format!("the model has no operator `{unknown}`"))
                .with_hint(format!("it has: {}", known.join(", "))));
        }
        self.cases.iter().try_for_each(|id| self.suite.find_case(id).map(drop))?;
        let all = self.suite.cases().map(|case| (self.suite.case_id(case), graph.node(case.node).op.name()));
        let named = all.filter(|(id, op)| {
            (self.cases.is_empty() || self.cases.contains(id))
                && (self.ops.is_empty() || self.ops.iter().any(|o| o == op))
        });
        Ok(named.collect())
    }

    /// One thread for each device, newcomers included, until all cases are done or nobody is left.
    fn all(&self, targets: &[String], members: Vec<Member>, board: &Board<'_>) -> Result<Vec<Column>> {
        let columns = Mutex::new(Vec::new());
        let running = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let mut known: BTreeSet<String> = BTreeSet::new();
            let mut begin = |member: Member| {
                if !known.insert(member.target.clone()) || !board.lanes.contains(&self.spread.lane(&member)) {
                    return;
                }
                // Counted before the thread starts, so that the loop below cannot miss it.
                running.fetch_add(1, Ordering::AcqRel);
                let (columns, running) = (&columns, &running);
                scope.spawn(move || {
                    let column = worker::Worker::new(self, board, member).work();
                    columns.lock().unwrap_or_else(PoisonError::into_inner).push(column);
                    running.fetch_sub(1, Ordering::AcqRel);
                });
            };
            members.into_iter().for_each(&mut begin);
            let mut looked = Instant::now();
            // Polled: newcomers are looked for in the same loop.
            while running.load(Ordering::Acquire) > 0 {
                std::thread::sleep(Duration::from_millis(20));
                if looked.elapsed() > LOOK {
                    looked = Instant::now();
                    // A hub that is away now may come back.
                    self::members(targets).unwrap_or_default().into_iter().for_each(&mut begin);
                }
            }
        });
        self.stop.check()?;
        let mut columns = columns.into_inner().unwrap_or_else(PoisonError::into_inner);
        columns
            .sort_by(|a, b| (a.member.class(), &a.member.target).cmp(&(b.member.class(), &b.member.target)));
        Ok(columns)
    }
}

/// The devices that words name now.
fn members(targets: &[String]) -> Result<Vec<Member>> {
    let mut all: Vec<Member> = Vec::new();
    for target in targets {
        let spec = PlatformSpec::parse(target)?;
        let address = if spec.is_remote() { Some(Address::parse(&spec.word, &spec.options)?) } else { None };
        let found = match address.filter(|address| address.hub) {
            Some(address) => at_hub(&spec, &address)?,
            None => vec![single(target, &spec)?],
        };
        for member in found {
            if !all.iter().any(|known| known.target == member.target) {
                all.push(member);
            }
        }
    }
    Ok(all)
}

/// The devices of a hub that a word names: all, those of an agent, one device, or one platform.
fn at_hub(spec: &PlatformSpec, address: &Address) -> Result<Vec<Member>> {
    let name = spec.word.strip_prefix("hub").unwrap_or_default().trim_start_matches('/');
    let suits = |device: &str| {
        let (agent, own) = device.split_once('/').unwrap_or((device, ""));
        name.is_empty() || device == name || agent == name || own.split(':').next() == Some(name)
    };
    let offers = client::offers(address)?.into_iter().filter(|offer| suits(&offer.name));
    let members = offers.filter_map(|offer| {
        let info = offer.info?;
        let word = format!("hub/{}", offer.name);
        Some(Member {
            target: PlatformSpec { word, ..spec.clone() }.to_string(),
            platform: info.platform,
            device: info.name,
            driver: info.driver,
            agent: offer.agent,
        })
    });
    Ok(members.collect())
}

/// A device that is no hub's: opened once to learn what it is.
fn single(target: &str, spec: &PlatformSpec) -> Result<Member> {
    let info = platform::open(spec, Overrides::default())?.describe();
    let agent = concat!("tapml ", env!("CARGO_PKG_VERSION")).to_string();
    let (platform, device, driver) = (info.platform, info.device, info.driver);
    Ok(Member { target: target.into(), platform, device, driver, agent })
}
