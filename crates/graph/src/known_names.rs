//! The hint of an error about a name that does not exist.

/// Names of which a mistyped one is taken to be meant, by Jaro and Winkler's similarity from 0 to 1: a swapped, left out or
/// doubled letter of a word of six lies above.
const LIKELY: f64 = 0.85;
/// Lists up to this length are told beside the name that is meant.
const SHORT: usize = 12;
/// Longer names are compared up to here: they may come from a file.
const LONGEST: usize = 64;

/// Tells which name was meant, or which there are: `did you mean rms_norm?`, or `known: add, mul`.
///
/// A short list is told in any case, a long one only if no name resembles the given one.
pub fn known_names<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let name: String = name.chars().take(LONGEST).collect();
    let scored = known.iter().map(|known| (strsim::jaro_winkler(&name, known), *known));
    // Of names that are as near, the first.
    let best = scored.fold(
        (LIKELY, None),
        |best, (score, known)| {
            if score > best.0 { (score, Some(known)) } else { best }
        },
    );
    let list = format!("known: {}", known.join(", "));
    match best.1 {
        Some(meant) if known.len() <= SHORT => format!("did you mean `{meant}`? {list}"),
        Some(meant) => format!("did you mean `{meant}`?"),
        None => list,
    }
}

#[cfg(test)]
mod tests {
    use super::known_names;
    use crate::op;

    #[test]
    fn a_mistyped_operator_is_told() {
        for (typed, meant) in [
            ("rms_nrom", "rms_norm"),
            ("atention", "attention"),
            ("linear2", "linear"),
            ("rmsnorm", "rms_norm"),
        ] {
            assert_eq!(known_names(typed, op::names()), format!("did you mean `{meant}`?"));
        }
    }

    #[test]
    fn a_name_that_resembles_none_gets_the_list() {
        assert_eq!(known_names("x", ["add", "mul"]), "known: add, mul");
        assert_eq!(known_names("ad", ["add", "mul"]), "did you mean `add`? known: add, mul");
        assert!(known_names(&"é".repeat(1 << 20), op::names()).starts_with("known: "));
    }
}
