//! How many regimes of each kernel calls reach, and which none does.
//!
//! A regime counts one time for each kernel variant. `recorded`, `made` and `unreached` together are all
//! that runs can reach.

use serde::{Deserialize, Serialize};

/// The regimes of one row of the kernel list, over all its variants: the ways in which it works, told apart by the sizes of
/// a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelRegimes {
    /// The row, such as `linear/gemv`.
    pub kernel: String,
    /// Regimes that runs can reach.
    pub of: u64,
    /// Those that recorded calls reach.
    pub recorded: u64,
    /// Those that only made calls reach.
    pub made: u64,
    /// Those that no call reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached: Vec<Unreached>,
}

/// A regime that no call reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreached {
    /// The regime.
    pub regime: String,
    /// Why no call could be made for it.
    pub reason: String,
}

impl KernelRegimes {
    /// Adds these to those of all kernels, or to what is known of this kernel.
    pub fn join(self, all: &mut Vec<KernelRegimes>) {
        match all.iter_mut().find(|known| known.kernel == self.kernel) {
            Some(known) => {
                (known.of, known.recorded) = (known.of + self.of, known.recorded + self.recorded);
                known.made += self.made;
                known.unreached.extend(self.unreached);
            }
            None => all.push(self),
        }
    }
}

/// The regimes of one row of the kernel list, and those of them that only made calls can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowRegimes {
    /// The numbers; a call that can be made counts as one that was.
    #[serde(flatten)]
    pub counts: KernelRegimes,
    /// Regimes that no recorded call reaches, but one made of recorded ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unrecorded: Vec<String>,
}

impl RowRegimes {
    /// Adds these to those of all rows, or to what is known of this row.
    pub fn join(self, all: &mut Vec<RowRegimes>) {
        let Some(at) = all.iter().position(|known| known.counts.kernel == self.counts.kernel) else {
            all.push(self);
            return;
        };
        let mut counts = vec![std::mem::take(&mut all[at].counts)];
        self.counts.join(&mut counts);
        // The joined list has one entry, as both are of the same row.
        all[at].counts = counts.remove(0);
        let new: Vec<String> =
            self.unrecorded.into_iter().filter(|regime| !all[at].unrecorded.contains(regime)).collect();
        all[at].unrecorded.extend(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{OpCheck, RegimeCount};

    #[test]
    fn a_kernel_of_both_phases_is_told_once() {
        let row = |recorded: u64| KernelRegimes {
            kernel: "attention/split".into(),
            of: 5,
            recorded,
            made: 4 - recorded,
            unreached: vec![Unreached { regime: format!("n > {recorded}"), reason: "too large".into() }],
        };
        let check = |recorded: u64| OpCheck { regimes: vec![row(recorded)], ..OpCheck::default() };
        let both = check(1).and(check(2));
        let [found] = both.regimes.as_slice() else { panic!("{:?}", both.regimes) };
        assert_eq!((found.of, found.recorded, found.made, found.unreached.len()), (10, 3, 5, 2));
        let count = RegimeCount::of_checks([&both]);
        assert_eq!(count, RegimeCount { of: 10, recorded: 3, made: 5 });
        let mut rows = Vec::new();
        for regime in ["n > 8", "p > 4", "n > 8"] {
            RowRegimes { counts: row(0), unrecorded: vec![regime.into()] }.join(&mut rows);
        }
        assert_eq!((rows.len(), rows[0].counts.of, rows[0].unrecorded.len()), (1, 15, 2));
    }
}
