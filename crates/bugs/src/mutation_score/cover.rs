//! The smallest set of cases that still kills everything: greedy set cover, at most `1 + ln n` times larger than the
//! smallest possible (Chvátal, "A Greedy Heuristic for the Set-Covering Problem", 1979).

use std::collections::BTreeSet;

/// Positions of cases that together cover what all cover. `kills[m]` are the cases that kill mutant `m`; of equal cases the
/// first is taken.
///
/// Case numbers beyond `cases` are ignored. Mutants that nothing kills are not covered.
pub fn smallest(kills: &[Vec<u32>], cases: usize) -> Vec<u32> {
    let mut of_case: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); cases];
    for (mutant, killers) in kills.iter().enumerate() {
        for &case in killers {
            if let Some(own) = of_case.get_mut(case as usize) {
                own.insert(mutant);
            }
        }
    }
    let mut chosen = Vec::new();
    loop {
        // `max_by_key` gives the last of equal ones, so the order is reversed.
        let best = (0..cases).rev().max_by_key(|&case| of_case[case].len());
        let Some(best) = best.filter(|&case| !of_case[case].is_empty()) else { break };
        // What is covered counts for no other case any more.
        let covered = std::mem::take(&mut of_case[best]);
        of_case.iter_mut().for_each(|own| own.retain(|m| !covered.contains(m)));
        chosen.push(best as u32);
    }
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_cases_cover_all_that_can_be_covered() {
        assert_eq!(smallest(&[vec![0, 1], vec![1, 2], vec![2], vec![]], 3), [1, 2]);
        assert_eq!(smallest(&[vec![0, 1, 2], vec![0, 1, 2]], 3), [0], "the first of equals");
        assert!(smallest(&[vec![], vec![9]], 3).is_empty(), "a case that does not exist kills nothing");
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..50 {
            let kills: Vec<Vec<u32>> = (0..20).map(|_| (0..8).filter(|_| random.bool()).collect()).collect();
            let chosen = smallest(&kills, 8);
            let covered = |mutant: &Vec<u32>| mutant.is_empty() || mutant.iter().any(|c| chosen.contains(c));
            assert!(kills.iter().all(covered), "{kills:?} {chosen:?}");
        }
    }
}
