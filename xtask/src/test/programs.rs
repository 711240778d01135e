//! What runs: the test programs that cargo builds, and the examples of the documentation.

use super::Arguments;
use super::tally::{self, Tally};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program that runs tests.
pub struct TestProgram {
    /// The file that it is made of, relative to the root.
    pub name: String,
    /// Where it runs.
    pub folder: PathBuf,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The manifest of its package, which cargo names in the environment of tests.
    pub manifest: Option<PathBuf>,
    /// Reads what it said.
    pub count: fn(&str) -> Tally,
    /// Whether it is known to wait most of its time.
    pub waits: bool,
}

#[cfg(test)]
impl TestProgram {
    /// One of this name that runs nothing.
    pub fn without_command(name: &str) -> TestProgram {
        let (folder, command) = (PathBuf::new(), Vec::new());
        TestProgram {
            name: name.into(),
            folder,
            command,
            manifest: None,
            count: tally::rust_tally,
            waits: false,
        }
    }
}

/// Builds the test programs that the arguments choose.
pub fn build(root: &Path, arguments: &Arguments) -> Result<Vec<TestProgram>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--no-run", "--message-format=json-render-diagnostics"]).current_dir(root);
    if arguments.package.is_empty() {
        cargo.arg("--workspace");
    }
    add_all(&mut cargo, "--package", &arguments.package);
    add_all(&mut cargo, "--test", &arguments.test);
    add_all(&mut cargo, "--features", &arguments.features);
    let output = cargo.stdout(Stdio::piped()).stderr(Stdio::inherit()).output();
    let output = output.context("could not start cargo test")?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    let mut programs = built_programs(&String::from_utf8_lossy(&output.stdout), root);
    for program in &mut programs {
        program.command.extend(arguments.words.iter().map(OsString::from));
    }
    Ok(programs)
}

/// The examples in comments of documentation, which cargo compiles and runs.
pub fn documentation(root: &Path, arguments: &Arguments) -> TestProgram {
    let mut command: Vec<OsString> =
        [env!("CARGO"), "test", "--workspace", "--doc", "--no-fail-fast", "--quiet"]
            .map(OsString::from)
            .into();
    command.extend(arguments.features.iter().flat_map(|list| ["--features".into(), OsString::from(list)]));
    TestProgram {
        name: "documentation".into(),
        folder: root.into(),
        command,
        manifest: None,
        count: tally::rust_tally,
        waits: false,
    }
}

fn add_all(cargo: &mut Command, option: &str, values: &[String]) {
    for value in values {
        cargo.args([option, value]);
    }
}

/// The test programs that cargo's messages name, one message a line. Other artifacts, such as the command that tests run, are
/// messages too.
fn built_programs(messages: &str, root: &Path) -> Vec<TestProgram> {
    let program = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        let path = |value: &Value| value.as_str().map(PathBuf::from);
        let executable = path(&message["executable"]).filter(|_| is_test)?;
        let (manifest, source) = (path(&message["manifest_path"])?, path(&message["target"]["src_path"])?);
        let name = source.strip_prefix(root).unwrap_or(&source).display().to_string();
        Some(TestProgram {
            name,
            folder: manifest.parent()?.into(),
            command: vec![executable.into()],
            manifest: Some(manifest),
            count: tally::rust_tally,
            waits: false,
        })
    };
    messages.lines().filter_map(program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_cargo_name_the_test_programs() {
        let artifact = |source: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///r/crates/a#tapml-a@0.2.0",
                "manifest_path":"/r/crates/a/Cargo.toml","target":{{"kind":["test"],"name":"x","src_path":"{source}"}},
                "profile":{{"opt_level":"1","test":{test}}},"filenames":[],"executable":{executable},"fresh":true}}"#
            )
            .replace('\n', "")
        };
        let messages = [
            artifact("/r/crates/a/tests/hub.rs", true, r#""/r/target/debug/deps/hub-1""#),
            // The command itself, and a library, which no program is made of.
            artifact("/r/crates/a/src/main.rs", false, r#""/r/target/debug/tapml""#),
            artifact("/r/crates/a/src/lib.rs", true, "null"),
            r#"{"reason":"build-finished","success":true}"#.to_string(),
            "what a build script printed".to_string(),
        ];
        let programs = built_programs(&messages.join("\n"), Path::new("/r"));
        let [program] = programs.as_slice() else { panic!("{} programs", programs.len()) };
        assert_eq!(program.name, "crates/a/tests/hub.rs");
        assert_eq!(program.folder, Path::new("/r/crates/a"));
        assert_eq!(program.command, ["/r/target/debug/deps/hub-1"]);
        assert_eq!(program.manifest.as_deref(), Some(Path::new("/r/crates/a/Cargo.toml")));
    }
}
