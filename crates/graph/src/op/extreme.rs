//! Rows beyond what models usually give, on which a formula can go wrong that is right on everything recorded.

/// A kind of row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extreme {
    /// Zeros: a division by a norm or a sum without its guard.
    Zeros,
    /// Small numbers: squares and products that vanish.
    Tiny,
    /// Large numbers: squares that overflow, exponentials without their maximum subtracted.
    Large,
    /// All numbers the same: choices without an order, variances that cancel.
    Ties,
    /// One number much larger than all others.
    Dominant,
}

impl Extreme {
    /// Every kind.
    pub const ALL: &'static [Extreme] =
        &[Extreme::Zeros, Extreme::Tiny, Extreme::Large, Extreme::Ties, Extreme::Dominant];
    /// Those that no recurrence amplifies: what it multiplies its state by stays below what was recorded.
    pub const BOUNDED: &'static [Extreme] = &[Extreme::Zeros, Extreme::Tiny, Extreme::Ties];
}
