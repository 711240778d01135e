//! The pages of the cache: which are free, how many sequences use each, and which full ones are kept for prompts that begin
//! alike. Slots of states are given out in the same way: what stands here of a full page holds of the state behind it.
//!
//! A full page is known by a key, a hash of all tokens up to its end and of the images that they stand for. BLAKE3 has no known
//! collisions, so equal keys mean equal tokens and images. Pages without users stay known until their place is needed; then the
//! one that was released first goes.

use super::images::PlacedImage;
use std::collections::{BTreeMap, HashMap};

/// Names the content of a full page: all tokens of its sequence up to the page's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageKey([u8; 32]);

impl PageKey {
    /// What the first page's key begins with. Sequences of different salts share nothing.
    pub fn root(salt: &str) -> PageKey {
        PageKey(*blake3::hash(salt.as_bytes()).as_bytes())
    }

    /// This key for prompts of so many tokens alone, where the rows of a page depend on it.
    pub fn for_length(&self, length: usize) -> PageKey {
        let mut hasher = blake3::Hasher::new();
        // As long as no key of tokens, so that it is none of these.
        hasher.update(&self.0).update(b"length").update(&(length as u64).to_le_bytes());
        PageKey(*hasher.finalize().as_bytes())
    }

    /// The key of the page that holds `ids` behind the page of this key.
    pub fn next(&self, ids: &[u32]) -> PageKey {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        ids.iter().for_each(|id| {
            hasher.update(&id.to_le_bytes());
        });
        PageKey(*hasher.finalize().as_bytes())
    }

    /// This key for a page some of whose tokens stand for the image.
    pub fn with_image(&self, image: &PlacedImage) -> PageKey {
        let mut hasher = blake3::Hasher::new();
        // As long as no key of tokens or of a length, so that it is none of these.
        hasher.update(&self.0).update(b"image").update(image.image.hash());
        hasher.update(&(image.start as u64).to_le_bytes());
        image.rows.iter().for_each(|row| {
            hasher.update(&row.to_le_bytes());
        });
        PageKey(*hasher.finalize().as_bytes())
    }
}

/// One page.
#[derive(Clone, Debug, Default)]
struct Page {
    /// Sequences in whose lists it is.
    users: u32,
    /// Its content, if it is known.
    key: Option<PageKey>,
    /// When its last user released it; its place among the idle.
    released: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct PagePool {
    pages: Vec<Page>,
    /// Pages without users and content.
    free: Vec<u32>,
    /// Known pages, with or without users.
    known: HashMap<PageKey, u32>,
    /// Known pages without users, by when they were released.
    idle: BTreeMap<u64, u32>,
    /// Counts releases.
    clock: u64,
}

impl PagePool {
    /// A pool of pages `0..count`, all free.
    pub fn new(count: usize) -> PagePool {
        PagePool {
            pages: vec![Page::default(); count],
            // The least number is taken first.
            free: (0..count as u32).rev().collect(),
            known: HashMap::new(),
            idle: BTreeMap::new(),
            clock: 0,
        }
    }

    /// Pages that [`PagePool::allocate`] can still give.
    pub fn available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    /// Pages that have users.
    pub fn used_pages(&self) -> usize {
        self.pages.len() - self.available()
    }

    /// A page to write to, for one user. What an idle page held is forgotten if no page is free.
    pub fn allocate(&mut self) -> Option<u32> {
        let page = self.free.pop().or_else(|| {
            let (_, page) = self.idle.pop_first()?;
            let key = self.pages[page as usize].key.take();
            key.and_then(|key| self.known.remove(&key));
            Some(page)
        })?;
        self.pages[page as usize].users = 1;
        Some(page)
    }

    /// The page of this content, for one more user, who must not write to it.
    pub fn share(&mut self, key: &PageKey) -> Option<u32> {
        let number = *self.known.get(key)?;
        let page = &mut self.pages[number as usize];
        if page.users == 0 {
            self.idle.remove(&page.released);
        }
        page.users += 1;
        Some(number)
    }

    /// Says what a page holds that its user has filled and writes no more. Of two pages of one content the first stays known.
    pub fn keep(&mut self, page: u32, key: PageKey) {
        if let std::collections::hash_map::Entry::Vacant(entry) = self.known.entry(key) {
            entry.insert(page);
            self.pages[page as usize].key = Some(key);
        }
    }

    /// Whether a page of this content is known.
    pub fn knows(&self, key: &PageKey) -> bool {
        self.known.contains_key(key)
    }

    /// Whether only its one user may read the page, which may then write to it.
    pub fn is_private(&self, page: u32) -> bool {
        let page = &self.pages[page as usize];
        page.users == 1 && page.key.is_none()
    }

    /// Makes a content unknown: it is of no use to others any more.
    pub fn drop_content(&mut self, key: &PageKey) {
        let Some(number) = self.known.remove(key) else { return };
        let page = &mut self.pages[number as usize];
        page.key = None;
        if page.users == 0 {
            self.idle.remove(&page.released);
            self.free.push(number);
        }
    }

    /// One user needs a page no more.
    pub fn release(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        page.users -= 1;
        if page.users > 0 {
            return;
        }
        if page.key.is_some() {
            self.clock += 1;
            page.released = self.clock;
            self.idle.insert(self.clock, number);
        } else {
            self.free.push(number);
        }
    }

    /// How many users a page has.
    #[cfg(test)]
    pub fn users(&self, page: u32) -> u32 {
        self.pages[page as usize].users
    }

    /// The pages' content is lost. Who uses them must release them.
    pub fn forget(&mut self) {
        self.known.clear();
        self.pages.iter_mut().for_each(|page| page.key = None);
        self.free.extend(std::mem::take(&mut self.idle).into_values());
    }
}

#[cfg(test)]
mod tests;
