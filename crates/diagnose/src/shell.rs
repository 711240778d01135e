//! Commands that a reader may paste into a shell.

/// What is reduced, and where it fails: what the command that makes a standalone reproducer names.
///
/// Texts come from files of others, so every one of them is quoted.
#[derive(Clone, Copy, Debug)]
pub struct Reduction<'a> {
    /// The suite's folder.
    pub suite: &'a str,
    /// The target.
    pub target: &'a str,
    /// The user's kernels, given as `OP=FILE`.
    pub kernels: &'a [String],
    /// Who evaluates operators of others that TapML does not.
    pub oracle: Option<&'a str>,
}

impl Reduction<'_> {
    /// The command for a case of the suite.
    pub fn of_case(&self, case: &str) -> String {
        self.command(&format!("--case {}", quote(case)), case)
    }

    /// The command for nodes that fail together.
    pub fn of_nodes(&self, nodes: &[String]) -> String {
        let names = nodes.iter().map(|name| quote(name)).collect::<Vec<_>>().join(" ");
        // The folder must have a name that is one.
        let last = nodes.last().map_or("", |name| name.rsplit('/').next().unwrap_or(name));
        self.command(&format!("--nodes {names}"), last)
    }

    /// The whole command line. `out` is the name of the reproducer's folder, without its extension.
    fn command(&self, what: &str, out: &str) -> String {
        let kernels: String =
            self.kernels.iter().map(|kernel| format!(" --kernel {}", quote(kernel))).collect();
        let oracle = self.oracle.map(|oracle| format!(" --oracle {}", quote(oracle))).unwrap_or_default();
        let (suite, target) = (path(self.suite), quote(self.target));
        let out = quote(&format!("{out}.repro"));
        format!("tapml reduce {suite} {what} --target {target}{kernels}{oracle} --out {out}")
    }
}

/// A path as one word of a shell, which no command takes for an option.
pub(crate) fn path(path: &str) -> String {
    quote(&if path.starts_with('-') { format!("./{path}") } else { path.into() })
}

/// A text as one word of a shell.
pub(crate) fn quote(text: &str) -> String {
    // No shell can be given the byte 0, and no file name has it.
    shlex::try_quote(&text.replace('\0', "")).map_or_else(|_| String::new(), |word| word.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_and_not_commands() {
        let plain = Reduction { suite: "a/llama.suite", target: "emulator", kernels: &[], oracle: None };
        let together = plain.of_nodes(&["/cv1/Conv".into(), "/cv1/my Relu".into()]);
        assert_eq!(
            together,
            "tapml reduce a/llama.suite --nodes /cv1/Conv '/cv1/my Relu' --target emulator --out 'my Relu.repro'"
        );
        let plain = plain.of_case("p0.s1.norm");
        assert_eq!(
            plain,
            "tapml reduce a/llama.suite --case p0.s1.norm --target emulator --out p0.s1.norm.repro"
        );
        let kernels = ["rope=my 'rope'.wgsl".to_string()];
        let (suite, target) = ("-my model; touch X", "emulator?check=all&kind=gpu");
        let evil =
            Reduction { suite, target, kernels: &kernels, oracle: Some("torch-f64") }.of_case("p0.$(id)");
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
            "--oracle",
            "torch-f64",
            "--out",
            "p0.$(id).repro",
        ];
        assert_eq!(words, expected);
    }
}
