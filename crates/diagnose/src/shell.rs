//! Commands that a reader may paste into a shell.

/// The command that makes a standalone reproducer of a case of a suite, with the user's kernels, given as `OP=FILE`.
pub fn reduce_command(suite: &str, case: &str, target: &str, kernels: &[String]) -> String {
    let kernels: String = kernels.iter().map(|kernel| format!(" --kernel {}", quoted(kernel))).collect();
    let (suite, target, out) = (path(suite), quoted(target), quoted(&format!("{case}.repro")));
    format!("tapml reduce {suite} --case {} --target {target}{kernels} --out {out}", quoted(case))
}

/// A path as one word of a shell, which no command takes for an option.
pub(crate) fn path(path: &str) -> String {
    quoted(&if path.starts_with('-') { format!("./{path}") } else { path.into() })
}

/// A text as one word of a shell.
pub(crate) fn quoted(text: &str) -> String {
    // No shell can be given the byte 0, and no file name has it.
    shlex::try_quote(&text.replace('\0', "")).map_or_else(|_| String::new(), |word| word.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_and_not_commands() {
        let plain = reduce_command("a/llama.suite", "p0.s1.norm", "emulator", &[]);
        assert_eq!(
            plain,
            "tapml reduce a/llama.suite --case p0.s1.norm --target emulator --out p0.s1.norm.repro"
        );
        let kernels = ["rope=my 'rope'.wgsl".to_string()];
        let evil = reduce_command("-my model; touch X", "p0.$(id)", "emulator?check=all&kind=gpu", &kernels);
        let words = shlex::split(&evil).unwrap();
        let expected = [
            "tapml",
            "reduce",
            "./-my model; touch X",
            "--case",
            "p0.$(id)",
            "--target",
            "emulator?check=all&kind=gpu",
            "--kernel",
            "rope=my 'rope'.wgsl",
            "--out",
            "p0.$(id).repro",
        ];
        assert_eq!(words, expected);
    }
}
