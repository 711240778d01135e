//! Delta debugging: the smallest set that still fails, found by leaving out parts of a larger one.

use tapml_graph::Result;

/// What is left of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Smallest<T> {
    /// What still fails, in the order of the input.
    pub items: Vec<T>,
    /// Whether leaving out any single item was tried and makes it pass.
    pub minimal: bool,
}

/// The smallest part of `items` that still fails, by `ddmin` (Zeller and Hildebrandt, "Simplifying and Isolating
/// Failure-Inducing Input", 2002): tries parts, then what is left without a part, in ever finer parts. The whole is known
/// to fail. `fails` is asked at most `trials` times; items keep their order.
/// `minimal` is false if the trials ran out.
///
/// # Errors
///
/// The first error of `fails`.
pub(super) fn smallest<T: Clone>(
    items: Vec<T>,
    trials: usize,
    fails: &mut dyn FnMut(&[T]) -> Result<bool>,
) -> Result<Smallest<T>> {
    let mut search = Search { left: trials, fails };
    // `parts` is the granularity: it doubles where nothing smaller fails, and starts at 2 again after a part did.
    let (mut items, mut parts) = (items, 2);
    while items.len() > 1 {
        let size = items.len().div_ceil(parts);
        let without = |at: usize| [&items[..at * size], &items[items.len().min((at + 1) * size)..]].concat();
        let chunks = items.chunks(size).map(<[T]>::to_vec);
        // Of two parts, the rest without one is the other.
        let rests = (0..items.len().div_ceil(size)).filter(|_| parts > 2).map(without);
        let found = match search.first(chunks)? {
            Some(chunk) => Some((chunk, 2)),
            None => search.first(rests)?.map(|rest| (rest, parts - 1)),
        };
        match found {
            Some((smaller, next)) => (items, parts) = (smaller, next.max(2)),
            None if search.left == 0 => return Ok(Smallest { items, minimal: false }),
            // Every part was a single item, so each has been left out.
            None if parts >= items.len() => return Ok(Smallest { items, minimal: true }),
            None => parts = (2 * parts).min(items.len()),
        }
    }
    Ok(Smallest { items, minimal: true })
}

/// Counts the trials.
struct Search<'a, T> {
    /// Trials that may still be made.
    left: usize,
    /// Whether a set fails.
    fails: &'a mut dyn FnMut(&[T]) -> Result<bool>,
}

impl<T> Search<'_, T> {
    /// The first of these sets that fails.
    fn first(&mut self, sets: impl Iterator<Item = Vec<T>>) -> Result<Option<Vec<T>>> {
        for set in sets.filter(|set| !set.is_empty()) {
            // The caller tells this from a search without success by `left`.
            if self.left == 0 {
                return Ok(None);
            }
            self.left -= 1;
            if (self.fails)(&set)? {
                return Ok(Some(set));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_smallest(count: u32, needed: &[u32], trials: usize) -> (Smallest<u32>, usize) {
        let mut asked = 0;
        let result = smallest((0..count).collect(), trials, &mut |set| {
            asked += 1;
            Ok(needed.iter().all(|n| set.contains(n)))
        });
        (result.unwrap(), asked)
    }

    #[test]
    fn one_item_takes_a_logarithm_of_trials() {
        for item in [0, 77, 154] {
            let (smallest, asked) = find_smallest(155, &[item], 100);
            assert_eq!(smallest, Smallest { items: vec![item], minimal: true });
            assert!(asked <= 16, "{asked}");
        }
    }

    #[test]
    fn items_that_fail_only_together_are_found() {
        for needed in [vec![3, 4], vec![0, 154], vec![10, 60, 61], vec![1, 50, 100, 150]] {
            let (smallest, asked) = find_smallest(155, &needed, 1000);
            assert!(asked < 80 * needed.len(), "{needed:?}: {asked}");
            assert_eq!(smallest, Smallest { items: needed, minimal: true });
        }
    }

    #[test]
    fn a_search_that_is_cut_short_gives_what_it_has() {
        let (smallest, asked) = find_smallest(155, &[0, 154], 5);
        assert!(asked == 5 && !smallest.minimal && smallest.items.contains(&0));
        let (all, _) = find_smallest(6, &[0, 1, 2, 3, 4, 5], 100);
        assert!(all.minimal && all.items.len() == 6);
    }

    #[test]
    fn an_error_ends_the_search() {
        let failing = &mut |_: &[u32]| Err(tapml_graph::Error::bug("no"));
        assert!(smallest(vec![1, 2, 3], 9, failing).is_err());
    }
}
