//! How many tests passed and failed, read from what test programs say.

/// The tests of one program.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    /// Those that failed.
    pub names: Vec<String>,
    /// What was skipped and why, where the program says it in its output.
    pub skips: Vec<String>,
}

/// Reads the output of Rust's test harness, of one program or of several.
pub fn rust_tally(output: &str) -> Tally {
    let mut tally = Tally::default();
    // Under the first such line stands what each failed test said, under the last one their names, each with four spaces
    // before it.
    let mut named = false;
    for line in output.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["test", "result:", _, passed, "passed;", failed, "failed;", ..] = words.as_slice() {
            tally.passed += passed.parse::<u64>().unwrap_or(0);
            tally.failed += failed.parse::<u64>().unwrap_or(0);
        }
        match line.strip_prefix("    ") {
            Some(name) if named => tally.names.push(name.to_string()),
            _ => named = line == "failures:" || named && line.is_empty(),
        }
    }
    tally
}

/// Reads the output of Node.js's test runner in the form of TAP.
pub fn node_tally(output: &str) -> Tally {
    let sum = |word: &str| {
        let count = |line: &str| line.strip_prefix(word)?.trim().parse::<u64>().ok();
        output.lines().filter_map(count).sum()
    };
    let failed = output.lines().filter_map(|line| line.trim_start().strip_prefix("not ok "));
    let skipped = output.lines().filter(|line| line.starts_with("ok ") && line.contains("# SKIP"));
    Tally {
        passed: sum("# pass "),
        failed: sum("# fail "),
        // `not ok 3 - NAME`
        names: failed.filter_map(|line| Some(line.split_once(" - ")?.1.to_string())).collect(),
        skips: skipped.map(str::to_string).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_rust_are_added_up_and_failed_tests_named() {
        let output = "\nrunning 3 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\n\nfailures:\nthread 'b' \
                      panicked at x.rs:1:1:\n    no name\n\n\nfailures:\n    b\n    c::d\n\ntest result: FAILED. 1 passed; 2 failed; \
                      0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\nrunning 4 tests\ntest result: ok. 4 passed; 0 \
                      failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        let expected =
            Tally { passed: 5, failed: 2, names: vec!["b".into(), "c::d".into()], skips: Vec::new() };
        assert_eq!(rust_tally(output), expected);
        assert_eq!(rust_tally("thread 'main' overflowed its stack"), Tally::default());
    }

    #[test]
    fn results_of_node_are_added_up() {
        let output = "TAP version 13\nok 1 - a\nnot ok 2 - b\nok 3 - c # SKIP no driver\n# pass 1\n# fail 1\n# skipped 1\n# pass 2\n";
        let skips = vec!["ok 3 - c # SKIP no driver".into()];
        assert_eq!(node_tally(output), Tally { passed: 3, failed: 1, names: vec!["b".into()], skips });
    }
}
