//! What the hub serves to browsers: the page that turns a tab into an agent.

use super::Page;

/// Pages by their paths.
pub const PAGES: &[Page] = &[];
