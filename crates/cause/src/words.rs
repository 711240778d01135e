//! Numbers and places in words.
//!
//! Texts go into reports; they have no units, since values of a model have none.

/// A number with four significant digits.
pub(crate) fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    // Very small and very large numbers are written with an exponent.
    if !(-4..7).contains(&magnitude) {
        let text = format!("{value:.3e}");
        // 1.000e-6 reads better as 1e-6.
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{exponent}", trim_digits(digits));
    }
    trim_digits(&format!("{value:.*}", (3 - magnitude).max(0) as usize)).to_string()
}

/// Digits without zeros behind the point.
fn trim_digits(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// Well-known factors.
/// They are compared to a part in 5000, as fitted factors are no more exact.
const KNOWN: &[(f64, &str)] = &[
    (std::f64::consts::LN_2, "ln 2, as if 2^x stood for e^x"),
    (std::f64::consts::LOG2_E, "log2 e, as if e^x stood for 2^x"),
    (std::f64::consts::SQRT_2, "the root of 2"),
    (std::f64::consts::FRAC_1_SQRT_2, "1 by the root of 2"),
    (std::f64::consts::PI, "pi"),
    (std::f64::consts::TAU, "2 pi"),
];

/// A factor in words: its value, and what it is if it is well known.
/// Inverses of whole numbers and of their roots are named too, since scales have that form.
pub(crate) fn factor(value: f64) -> String {
    // Relative, so that it holds for large and small factors.
    let close = |known: f64| (value.abs() / known - 1.0).abs() < 2e-4;
    let sign = if value < 0.0 { "minus " } else { "" };
    if let Some((_, name)) = KNOWN.iter().find(|(known, _)| close(*known)) {
        return format!("{} ({sign}{name})", number(value));
    }
    // Scales are often 1/n or 1/√n; larger factors are left as they are.
    let whole = value.abs().recip().round();
    if value.abs() < 0.9 && (1.0..1e6).contains(&whole) && close(whole.recip()) {
        return format!("{} ({sign}1/{whole})", number(value));
    }
    let square = value.abs().powi(-2).round();
    if value.abs() < 0.9 && (1.0..1e6).contains(&square) && close(square.sqrt().recip()) {
        return format!("{} ({sign}1 by the root of {square})", number(value));
    }
    number(value)
}

/// Sorted indices as ranges, at most four of them: `0, 3..7, 12, … (31 in all)`.
pub(crate) fn ranges(items: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &item in items {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == item => *last = item,
            _ => runs.push((item, item)),
        }
    }
    let text = |&(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}..{last}") }
    };
    let shown: Vec<String> = runs.iter().take(4).map(text).collect();
    // The count tells how much is not listed.
    if runs.len() > 4 {
        format!("{}, … ({} in all)", shown.join(", "), items.len())
    } else {
        shown.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(1e-6), "1e-6");
        assert_eq!(number(0.125), "0.125");
        assert_eq!(number(-1234.5678), "-1235");
        assert_eq!(number(1e9), "1e9");
        assert_eq!(number(0.0), "0");
    }

    #[test]
    fn factors_are_recognised() {
        assert_eq!(factor(std::f64::consts::LN_2), "0.6931 (ln 2, as if 2^x stood for e^x)");
        assert_eq!(factor(0.25), "0.25 (1/4)");
        assert_eq!(factor(-1.5), "-1.5");
    }

    #[test]
    fn ranges_are_bounded() {
        assert_eq!(ranges(&[0, 3, 4, 5]), "0, 3..5");
        assert_eq!(ranges(&[0, 2, 4, 6, 8]), "0, 2, 4, 6, … (5 in all)");
        assert_eq!(ranges(&[]), "");
    }
}
