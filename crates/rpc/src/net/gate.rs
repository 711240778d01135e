//! Who is let in: tokens, and bounds for those without one.

use super::peer::Peer;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind, Result};

/// Connections that may be on their way in at once.
const WAITING: usize = 128;

/// Of these, how many of one address.
const OF_ADDRESS: usize = 64;

/// Wrong tokens from one address in [`FORGET`] before it is turned away.
const WRONG: u32 = 5;

/// How long wrong tokens count.
const FORGET: Duration = Duration::from_secs(60);

/// Addresses remembered.
const ADDRESSES: usize = 4096;

/// See the module.
pub struct Gate {
    token: Option<blake3::Hash>,
    most: usize,
    /// What is counted, as the option that bounds it is called: `sessions` or `clients`.
    counted: &'static str,
    waiting: Arc<Mutex<Vec<Stranger>>>,
    open: Arc<AtomicUsize>,
    wrong: Mutex<HashMap<IpAddr, (u32, Instant)>>,
}

/// A connection that has not shown a token.
struct Stranger {
    from: IpAddr,
    peer: Arc<Peer>,
}

/// A stranger's place, which is given back when this is dropped.
pub struct Waiting {
    all: Arc<Mutex<Vec<Stranger>>>,
    peer: Arc<Peer>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        lock(&self.all).retain(|stranger| !Arc::ptr_eq(&stranger.peer, &self.peer));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What counts as one address: a host of the old kind, a network of the new one, since its hosts choose the rest.
fn network(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        old => old,
    }
}

/// A place that is given back when this is dropped.
pub struct Place(Arc<AtomicUsize>);

impl Place {
    /// One of `most` places, if there is one left.
    pub fn take(count: &Arc<AtomicUsize>, most: usize) -> Option<Place> {
        let taken = count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < most).then_some(n + 1));
        taken.is_ok().then(|| Place(count.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Gate {
    /// A gate that wants this token, if any, for at most so many `sessions` or `clients` at once.
    pub fn new(token: Option<&str>, most: usize, counted: &'static str) -> Gate {
        Gate {
            token: token.map(|t| blake3::hash(t.as_bytes())),
            most,
            counted,
            waiting: Arc::default(),
            open: Arc::default(),
            wrong: Mutex::default(),
        }
    }

    /// A place for a connection that has not shown a token. If all are taken, somebody else's connection is closed for it.
    pub fn knock(&self, from: IpAddr, peer: &Arc<Peer>) -> Waiting {
        let from = network(from);
        let mut all = lock(&self.waiting);
        let own = all.iter().filter(|stranger| stranger.from == from).count();
        if own >= OF_ADDRESS || all.len() >= WAITING {
            // Nobody loses a place to an address that has taken more than its own share.
            let crowd = if own >= OF_ADDRESS { from } else { crowd(&all) };
            if let Some(at) = dispensable(&all, crowd) {
                all.remove(at).peer.close();
            }
        }
        all.push(Stranger { from, peer: peer.clone() });
        Waiting { all: self.waiting.clone(), peer: peer.clone() }
    }

    /// A place for a session, if the token is right. Tokens are compared by their hashes in constant time.
    pub fn enter(&self, from: IpAddr, token: &str) -> Result<Place> {
        self.check_token(from, token)?;
        self.admit()
    }

    /// Fails if this is not the token of sessions.
    pub fn check_token(&self, from: IpAddr, token: &str) -> Result<()> {
        self.expect(from, token, self.token)
    }

    /// Fails if this is not the token that is wanted.
    pub fn expect(&self, from: IpAddr, token: &str, want: Option<blake3::Hash>) -> Result<()> {
        let Some(want) = want else { return Ok(()) };
        let from = network(from);
        // Asked before the comparison: a guess in that time must not tell whether it was right.
        if let Some(left) = self.barred_for(from) {
            let text = format!(
                "{WRONG} wrong tokens came from your address, which is turned away for {} s, the right token too",
                left.as_secs() + 1
            );
            return Err(Error::new(ErrorKind::Unavailable, text).with_hint(
                "wait so long, and see which program there has another token than the agent or hub",
            ));
        }
        if want != blake3::hash(token.as_bytes()) {
            self.note_wrong(from);
            return Err(Error::invalid("this token is not accepted").with_hint(
                "give the token of the agent or hub: option `token-file=FILE`, or the variable TAPML_TOKEN",
            ));
        }
        Ok(())
    }

    /// A place for a session, whose client somebody else has let in.
    pub fn admit(&self) -> Result<Place> {
        let Gate { open, most, counted, .. } = self;
        Place::take(open, *most).ok_or_else(|| {
            let text = format!("there are {most} {counted} already, which is the most");
            let hint = format!("try again later, or let it serve more (--{counted})");
            Error::new(ErrorKind::Unavailable, text).with_hint(hint)
        })
    }

    /// How many places are taken.
    pub fn count(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// For how long an address is still turned away.
    fn barred_for(&self, from: IpAddr) -> Option<Duration> {
        let (count, since) = *lock(&self.wrong).get(&from)?;
        FORGET.checked_sub(since.elapsed()).filter(|_| count >= WRONG)
    }

    fn note_wrong(&self, from: IpAddr) {
        let mut wrong = lock(&self.wrong);
        if wrong.len() >= ADDRESSES {
            wrong.retain(|_, (_, since)| since.elapsed() < FORGET);
        }
        if wrong.len() >= ADDRESSES {
            // All are recent: memory stays bounded, at the price of forgetting them.
            wrong.clear();
        }
        let entry = wrong.entry(from).or_insert((0, Instant::now()));
        if entry.1.elapsed() >= FORGET {
            *entry = (0, Instant::now());
        }
        entry.0 += 1;
    }
}

/// The address with the most strangers.
fn crowd(all: &[Stranger]) -> IpAddr {
    let mut counts = HashMap::new();
    all.iter().for_each(|stranger| *counts.entry(stranger.from).or_insert(0) += 1);
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map_or(Ipv6Addr::UNSPECIFIED.into(), |(from, _)| from)
}

/// Who of an address goes first: of those who have said nothing who came first, else of all.
fn dispensable(all: &[Stranger], of: IpAddr) -> Option<usize> {
    let own = |stranger: &Stranger| stranger.from == of;
    let silent = all.iter().position(|stranger| own(stranger) && stranger.peer.is_silent());
    silent.or_else(|| all.iter().position(own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn wrong_tokens_are_counted_and_places_are_given_back() {
        let gate = Gate::new(Some("right"), 1, "sessions");
        let (one, two) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let place = gate.enter(one, "right").unwrap();
        assert_eq!(gate.enter(two, "right").err().map(|e| e.kind()), Some(ErrorKind::Unavailable));
        drop(place);
        assert!(gate.enter(two, "right").is_ok());
        for _ in 0..WRONG {
            assert_eq!(gate.enter(one, "wrong").err().map(|e| e.kind()), Some(ErrorKind::InvalidInput));
        }
        let barred = gate.enter(one, "right").err().unwrap();
        assert!(barred.to_string().contains("turned away for 60 s"), "{barred}");
        assert!(gate.enter(two, "right").is_ok(), "another address is not");
    }

    #[test]
    fn no_token_wanted_means_any_is_right() {
        assert!(Gate::new(None, 1, "sessions").enter(IpAddr::from([127, 0, 0, 1]), "").is_ok());
    }

    #[test]
    fn a_network_of_the_new_kind_counts_as_one_address() {
        let [a, b, c] = ["2001:db8::1", "2001:db8::2:0:0:1", "2001:db8:0:1::1"].map(|ip| ip.parse().unwrap());
        assert!(network(a) == network(b) && network(a) != network(c));
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), IpAddr::from([10, 0, 0, 1]));
    }

    /// Both ends of a connection.
    fn pair(listener: &TcpListener) -> (TcpStream, Arc<Peer>) {
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = Peer::from_accepted(listener.accept().unwrap().0, FORGET).unwrap();
        (there, Arc::new(peer))
    }

    #[test]
    fn places_go_to_those_who_speak_and_then_to_those_who_come() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gate = Gate::new(None, 1, "sessions");
        let [one, two, three] = [1, 2, 3].map(|n| IpAddr::from([10, 0, 0, n]));
        let arrive = |from: IpAddr| {
            let (there, peer) = pair(&listener);
            (gate.knock(from, &peer), there, peer)
        };
        let waits = |arrived: &(Waiting, TcpStream, Arc<Peer>)| {
            lock(&gate.waiting).iter().any(|stranger| Arc::ptr_eq(&stranger.peer, &arrived.2))
        };
        let mut first = arrive(one);
        first.1.write_all(b"x").unwrap();
        while first.2.is_silent() {}
        let mut crowd: Vec<_> = (1..OF_ADDRESS).map(|_| arrive(one)).collect();
        crowd.push(arrive(one));
        assert!(waits(&first), "it has said something");
        assert_eq!(crowd.iter().position(waits), Some(1), "who came next has not, and is gone");
        let others: Vec<_> = (0..WAITING - OF_ADDRESS - 1).map(|_| arrive(two)).collect();
        assert!(others.iter().all(waits) && crowd.iter().filter(|c| waits(c)).count() == OF_ADDRESS - 1);
        let third = [arrive(three), arrive(three)];
        assert!(
            third.iter().all(waits) && others.iter().all(waits),
            "an address alone suffers from its crowd"
        );
        assert_eq!(lock(&gate.waiting).len(), WAITING);
        drop((first, crowd, others, third));
        assert_eq!(lock(&gate.waiting).len(), 0);
    }
}
