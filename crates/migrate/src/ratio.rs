//! Ratios of observed to allowed error for people.
//!
//! Right and wrong part at 1, so that a ratio near 1 must not be rounded to it.

/// A ratio with as many digits as tell it from 1, where right and wrong part.
pub fn ratio_text(ratio: f64) -> String {
    let distance = (ratio - 1.0).abs();
    match ratio {
        r if r >= 1e6 => format!("{r:.1e}"),
        r if r >= 100.0 => format!("{r:.0}"),
        r if distance > 0.0 && distance < 0.005 => {
            // A distance such as 0.00001 is not quite that number.
            let digits = (-distance.log10() - 1e-9).ceil().clamp(2.0, 15.0) as usize;
            format!("{r:.digits$}")
        }
        r => format!("{r:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::ratio_text;

    #[test]
    fn a_ratio_that_fails_never_looks_like_one_that_passes() {
        let rows = [
            (1.00001, "1.00001"),
            (1.004, "1.004"),
            (0.99999, "0.99999"),
            (1.0, "1.00"),
            (1.06, "1.06"),
            (0.25, "0.25"),
            (123.4, "123"),
            (2.5e7, "2.5e7"),
            (f64::INFINITY, "inf"),
        ];
        for (ratio, text) in rows {
            assert_eq!(ratio_text(ratio), text);
        }
        let mut above = 1.0 + 1e-9;
        while above < 2.0 {
            assert!(ratio_text(above).parse::<f64>().unwrap() > 1.0, "{above}");
            above = 1.0 + (above - 1.0) * 1.7;
        }
    }
}
