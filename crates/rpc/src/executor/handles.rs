//! Handles that a client chose, and what they stand for. What could not be made stays known, so that
//! destroying it is no error.

use std::collections::HashMap;
use tapml_graph::{Error, Result};

/// What handles of one sort stand for.
///
/// A client may use any number of 32 bits, and use it again when it was freed.
pub struct Handles<T> {
    /// In words for errors, such as `buffer`.
    sort: &'static str,
    /// `None` for what could not be made.
    map: HashMap<u32, Option<T>>,
}

impl<T> Handles<T> {
    /// No handles of this sort, which errors name.
    pub fn new(sort: &'static str) -> Handles<T> {
        Handles { sort, map: HashMap::new() }
    }

    /// Fails if the handle is taken.
    pub fn expect_free(&self, id: u32) -> Result<()> {
        if self.map.contains_key(&id) {
            Err(Error::invalid(format!("the {} {id} exists already", self.sort)))
        } else {
            Ok(())
        }
    }

    /// Notes what was made, or that it could not be made.
    pub fn insert(&mut self, id: u32, made: Option<T>) {
        self.map.insert(id, made);
    }

    /// What the handle stands for.
    pub fn get(&self, id: u32) -> Result<&T> {
        self.map.get(&id).and_then(Option::as_ref).ok_or_else(|| self.missing(id))
    }

    /// As [`Handles::get`], mutable.
    pub fn get_mut(&mut self, id: u32) -> Result<&mut T> {
        // Made first: the map is borrowed afterwards.
        let missing = self.missing(id);
        self.map.get_mut(&id).and_then(Option::as_mut).ok_or(missing)
    }

    /// Forgets the handle; `None` for what could not be made.
    pub fn remove(&mut self, id: u32) -> Result<Option<T>> {
        self.map.remove(&id).ok_or_else(|| self.missing(id))
    }

    /// The error of a handle that stands for nothing.
    fn missing(&self, id: u32) -> Error {
        if self.map.contains_key(&id) {
            Error::invalid(format!("the {} {id} could not be made", self.sort))
        } else {
            Error::invalid(format!("no {} {id}", self.sort))
        }
    }
}
