//! Sets of columns, of which each rank has one.

use std::ops::Range;

/// Columns of a matrix, or places along another axis: ranges in ascending order with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnSet(Vec<Range<u64>>);

impl ColumnSet {
    /// The columns of these ranges, in any order.
    pub fn from_ranges(ranges: impl IntoIterator<Item = Range<u64>>) -> ColumnSet {
        let mut ranges: Vec<Range<u64>> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        ranges.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        ColumnSet(merged)
    }

    /// All of so many columns.
    pub fn all(count: u64) -> ColumnSet {
        ColumnSet::from_ranges(std::iter::once(0..count))
    }

    /// The ranges.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// How many columns there are.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Every column.
    pub fn columns(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().cloned().flatten()
    }

    /// The columns of either.
    pub fn union(&self, other: &ColumnSet) -> ColumnSet {
        ColumnSet::from_ranges(self.0.iter().chain(&other.0).cloned())
    }

    /// The units of so many columns that these are; `None` unless they are whole units.
    pub fn units(&self, unit: u64) -> Option<ColumnSet> {
        let whole = |range: &Range<u64>| range.start.is_multiple_of(unit) && range.end.is_multiple_of(unit);
        let units = || self.0.iter().map(|range| range.start / unit..range.end / unit).collect();
        (unit > 0 && self.0.iter().all(whole)).then(units).map(ColumnSet)
    }

    /// The columns of these units.
    pub fn columns_of_units(&self, unit: u64) -> ColumnSet {
        ColumnSet::from_ranges(self.0.iter().map(|range| range.start * unit..range.end * unit))
    }

    /// The columns at these distances from the multiples of `step`: for each of `count` blocks the set.
    pub fn repeat(&self, step: u64, count: u64) -> ColumnSet {
        let block = |at: u64| self.0.iter().map(move |range| range.start + at * step..range.end + at * step);
        ColumnSet::from_ranges((0..count).flat_map(block))
    }

    /// The set of which this is a [`ColumnSet::repeat`]; `None` if blocks differ.
    pub fn block(&self, step: u64, count: u64) -> Option<ColumnSet> {
        let cut = |range: &Range<u64>| range.start.min(step)..range.end.min(step);
        let first = ColumnSet::from_ranges(self.0.iter().map(cut));
        (first.repeat(step, count) == *self).then_some(first)
    }

    /// The place of a column among these; `None` if it is none of them.
    pub fn place(&self, column: u64) -> Option<u64> {
        let at = self.0.iter().position(|range| range.contains(&column))?;
        let before: u64 = self.0[..at].iter().map(|range| range.end - range.start).sum();
        Some(before + column - self.0[at].start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_cut_in_units_and_joined_again() {
        let set = ColumnSet::from_ranges([40..60, 0..20, 20..30, 5..5]);
        assert_eq!(set.ranges(), [0..30, 40..60]);
        assert_eq!((set.count(), set.place(45), set.place(35)), (50, Some(35), None));
        assert_eq!(set.units(10).unwrap().ranges(), [0..3, 4..6]);
        assert_eq!(set.units(10).unwrap().columns_of_units(10), set);
        assert_eq!(set.units(20), None);
        assert_eq!(set.union(&ColumnSet::all(41)).ranges(), std::slice::from_ref(&(0..60)));
    }

    #[test]
    fn equal_blocks_are_one_block_again() {
        let block = ColumnSet::from_ranges([2..4, 6..8]);
        let all = block.repeat(8, 3);
        assert_eq!(all.ranges(), [2..4, 6..8, 10..12, 14..16, 18..20, 22..24]);
        assert_eq!(all.block(8, 3), Some(block));
        assert_eq!(all.block(6, 4), None);
        // Blocks that touch are one range.
        assert_eq!(ColumnSet::all(4).repeat(4, 2).block(4, 2), Some(ColumnSet::all(4)));
    }
}
