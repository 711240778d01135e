//! What else leaves out the last elements of a row or a sum: a bound is not the only index that may be wrong.
//!
//! Without such a check a bound would be called certain where values cannot tell it from another mistake.

/// The largest tile, step or workgroup that is looked for.
/// Common devices have at most 1024 invocations in a workgroup.
const LARGEST: usize = 1024;

/// What, beside a bound, may leave out the last `lost` of `size` elements, as a clause; `None` if nothing known does.
pub(super) fn of_an_end(lost: usize, size: usize) -> Option<&'static str> {
    // Nothing written, or nothing lost, is no end.
    let written = size.checked_sub(lost)?;
    if lost == 0 || written == 0 {
        return None;
    }
    let tiles = || (0..).map(|k| 1 << k).take_while(|&tile| tile <= LARGEST && tile <= size);
    // Tiles that are counted with a factor one too large, as in `tile * (16 + 1) < size`.
    let counted = |tile: usize| [size.div_ceil(tile + 1), size / (tile + 1)].contains(&(written / tile));
    if tiles().any(|tile| written.is_multiple_of(tile) && counted(tile)) {
        return Some("a wrong factor in a bound leaves out as many");
    }
    // Neighbouring tiles that are exchanged: the last of an odd number goes beyond the end.
    let tile = lost.next_power_of_two();
    if [tile, lost].iter().any(|tile| written.is_multiple_of(2 * tile)) {
        return Some("the last of an odd number, if neighbours are exchanged, goes beyond the end as well");
    }
    // Workgroups that share their places leave out more than a quarter, if they are more than three; two or three may
    // leave out less, but then a power of two is written.
    let shared = 4 * lost > size || written.is_power_of_two();
    shared.then_some("workgroups that share their places leave out as many")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_that_only_a_bound_leaves_out_are_told_from_others() {
        for (lost, size, rival) in [
            (48, 896, Some("factor")),
            (16, 896, None),
            (4, 896, None),
            (16, 320, Some("factor")),
            (4, 320, None),
            (1, 7, Some("factor")),
            (320, 2240, Some("odd")),
            (64, 320, Some("factor")),
            (192, 2240, Some("factor")),
            (17, 64, Some("share")),
            (3 * 320, 7 * 320, Some("share")),
            (10, 2240, None),
            (0, 8, None),
            (8, 8, None),
            (9, 8, None),
        ] {
            let found = of_an_end(lost, size);
            let as_expected = match rival {
                Some(word) => found.is_some_and(|text| text.contains(word)),
                None => found.is_none(),
            };
            assert!(as_expected, "{lost} of {size}: {found:?}");
        }
    }
}
