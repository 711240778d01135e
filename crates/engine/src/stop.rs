//! Finds stop texts in a stream and holds back what may become one.
//!
//! A stop text may be spread over several tokens, so what could be its beginning is held back.

/// Lets text through until a stop text appears.
#[derive(Clone, Debug)]
pub struct StopTexts {
    /// None is empty.
    stops: Vec<String>,
    /// What may be the beginning of a stop text.
    held: String,
    /// The stop text that was found.
    found: Option<String>,
}

impl StopTexts {
    /// Stops at the first of these texts to be complete; empty ones never occur.
    pub fn new(stops: &[String]) -> StopTexts {
        let stops = stops.iter().filter(|s| !s.is_empty()).cloned().collect();
        StopTexts { stops, held: String::new(), found: None }
    }

    /// Whether a stop text was found.
    pub fn is_stopped(&self) -> bool {
        self.found.is_some()
    }

    /// The stop text that was found.
    pub fn stop_text(&self) -> Option<&str> {
        self.found.as_deref()
    }

    /// Adds text; gives what certainly lies before any stop text.
    pub fn push(&mut self, text: &str) -> String {
        if self.is_stopped() {
            return String::new();
        }
        self.held.push_str(text);
        if let Some((end, start)) = first_stop(&self.stops, &self.held) {
            self.found = Some(self.held[start..end].to_string());
            self.held.truncate(start);
            return std::mem::take(&mut self.held);
        }
        let keep = self.stops.iter().map(|s| self.overlap(s)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        std::mem::replace(&mut self.held, rest)
    }

    /// What is held back when the text ends without a stop.
    pub fn finish(self) -> String {
        self.held
    }

    /// Bytes at the end of the held text with which `stop` begins.
    fn overlap(&self, stop: &str) -> usize {
        let longest = stop.len().min(self.held.len());
        let fits = |&n: &usize| stop.is_char_boundary(n) && self.held.ends_with(&stop[..n]);
        (0..=longest).rev().find(fits).unwrap_or(0)
    }
}

/// Where the stop text that is complete first ends and starts; of several that end there, the longest. A rule by the
/// end, not by the start, so that it does not matter in which pieces the text arrives.
fn first_stop(stops: &[String], text: &str) -> Option<(usize, usize)> {
    stops.iter().filter_map(|s| text.find(s.as_str()).map(|start| (start + s.len(), start))).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let stops: Vec<String> = stops.iter().map(|s| s.to_string()).collect();
        let mut filter = StopTexts::new(&stops);
        let mut text: String = pieces.iter().map(|p| filter.push(p)).collect();
        let stopped = filter.is_stopped();
        text.push_str(&filter.finish());
        (text, stopped)
    }

    #[test]
    fn stops_across_pieces_and_at_the_first_of_several() {
        assert_eq!(run(&["\n\n"], &["a\n", "\nb"]), ("a".into(), true));
        assert_eq!(run(&["\n\n"], &["a\n", "b\n"]), ("a\nb\n".into(), false));
        assert_eq!(run(&["bc", "b"], &["abcd"]), ("a".into(), true));
        assert_eq!(run(&["é!"], &["caf", "é", "?"]), ("café?".into(), false));
        assert_eq!(run(&["", "x"], &["a", "x", "b"]), ("a".into(), true));
        assert_eq!(run(&["éaé", "a"], &["éaé"]), ("é".into(), true));
        assert_eq!(run(&["éaé", "a"], &["éa", "é"]), ("é".into(), true));
    }

    #[test]
    fn the_text_that_was_found_is_told() {
        let mut filter = StopTexts::new(&["bc".into(), "é!".into()]);
        filter.push("ab é");
        assert_eq!(filter.stop_text(), None);
        filter.push("!bc");
        assert_eq!(filter.stop_text(), Some("é!"));
    }

    #[test]
    fn holds_back_no_more_than_may_become_a_stop() {
        let mut filter = StopTexts::new(&["END".into()]);
        assert_eq!(filter.push("the E"), "the ");
        assert_eq!(filter.push("N"), "");
        assert_eq!(filter.push("E"), "EN");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn cutting_the_text_into_pieces_changes_nothing(
            pieces in prop::collection::vec("[abé]{0,3}", 0..8),
            stops in prop::collection::vec("[abé]{1,3}", 0..3),
        ) {
            let whole = pieces.concat();
            let end = first_stop(&stops, &whole).map(|(_, start)| start);
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let (text, stopped) = run(&stops, &pieces);
            prop_assert_eq!(stopped, end.is_some());
            prop_assert_eq!(text.as_str(), &whole[..end.unwrap_or(whole.len())]);
        }
    }
}
