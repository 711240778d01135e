//! Who is let in: tokens, and bounds for those without one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind, Result};

/// Connections that may be on their way in at once.
const WAITING: usize = 128;

/// Wrong tokens from one address in [`FORGET`] before it is turned away.
const WRONG: u32 = 5;

/// How long wrong tokens count.
const FORGET: Duration = Duration::from_secs(60);

/// Addresses remembered.
const ADDRESSES: usize = 4096;

/// See the module.
pub struct Gate {
    token: Option<blake3::Hash>,
    sessions: usize,
    waiting: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    wrong: Mutex<HashMap<IpAddr, (u32, Instant)>>,
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
    /// A gate that wants this token, if any, for at most so many sessions at once.
    pub fn new(token: Option<&str>, sessions: usize) -> Gate {
        Gate {
            token: token.map(|t| blake3::hash(t.as_bytes())),
            sessions,
            waiting: Arc::default(),
            open: Arc::default(),
            wrong: Mutex::default(),
        }
    }

    /// A place for a connection that has not shown a token; `None` if there are too many or its address has shown too
    /// many wrong ones.
    pub fn knock(&self, from: IpAddr) -> Option<Place> {
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        let barred = wrong.get(&from).is_some_and(|(n, since)| *n >= WRONG && since.elapsed() < FORGET);
        if barred { None } else { Place::take(&self.waiting, WAITING) }
    }

    /// A place for a session, if the token is right. Tokens are compared by their hashes in constant time.
    pub fn enter(&self, from: IpAddr, token: &str) -> Result<Place> {
        self.expect(from, token, self.token)?;
        self.admit()
    }

    /// Fails if this is not the token that is wanted.
    pub fn expect(&self, from: IpAddr, token: &str, want: Option<blake3::Hash>) -> Result<()> {
        if want.is_some_and(|want| want != blake3::hash(token.as_bytes())) {
            self.note_wrong(from);
            return Err(Error::invalid("this token is not accepted").with_hint(
                "give the token of the agent or hub: option `token-file=FILE`, or the variable TAPML_TOKEN",
            ));
        }
        Ok(())
    }

    /// A place for a session, whose client somebody else has let in.
    pub fn admit(&self) -> Result<Place> {
        Place::take(&self.open, self.sessions).ok_or_else(|| {
            let text = format!("{} sessions are open already, which is the most", self.sessions);
            Error::new(ErrorKind::Unavailable, text)
                .with_hint("try again later, or let it serve more (--sessions)")
        })
    }

    fn note_wrong(&self, from: IpAddr) {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        if wrong.len() >= ADDRESSES {
            wrong.retain(|_, (_, since)| since.elapsed() < FORGET);
        }
        if wrong.len() >= ADDRESSES {
            wrong.clear();
        }
        let entry = wrong.entry(from).or_insert((0, Instant::now()));
        if entry.1.elapsed() >= FORGET {
            *entry = (0, Instant::now());
        }
        entry.0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_tokens_are_counted_and_places_are_given_back() {
        let gate = Gate::new(Some("right"), 1);
        let (one, two) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let place = gate.enter(one, "right").unwrap();
        assert_eq!(gate.enter(two, "right").err().map(|e| e.kind()), Some(ErrorKind::Unavailable));
        drop(place);
        assert!(gate.enter(two, "right").is_ok());
        for _ in 0..WRONG {
            assert!(gate.knock(one).is_some());
            assert!(gate.enter(one, "wrong").is_err());
        }
        assert!(gate.knock(one).is_none(), "barred for a while");
        let places: Vec<_> = std::iter::from_fn(|| gate.knock(two)).collect();
        assert_eq!(places.len(), WAITING);
        drop(places);
        assert!(gate.knock(two).is_some());
    }

    #[test]
    fn no_token_wanted_means_any_is_right() {
        assert!(Gate::new(None, 1).enter(IpAddr::from([127, 0, 0, 1]), "").is_ok());
    }
}
