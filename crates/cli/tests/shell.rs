//! Completions and manual pages say what `--help` says.
#![allow(clippy::unwrap_used)]

mod common;

use common::{stderr, tapml};

/// The commands that `--help` lists.
fn commands() -> Vec<String> {
    let help = tapml(&std::env::temp_dir()).arg("--help").assert().success().get_output().clone();
    let help = String::from_utf8(help.stdout).unwrap();
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.map(|line| line.split_whitespace().next().unwrap().to_string());
    names.filter(|name| name != "help").collect()
}

#[test]
fn every_shell_completes_every_command() {
    let (folder, commands) = (tempfile::tempdir().unwrap(), commands());
    assert!(commands.len() > 20, "{commands:?}");
    for (shell, mark) in [
        ("bash", "complete -F _tapml"),
        ("zsh", "#compdef tapml"),
        ("fish", "complete -c tapml"),
        ("powershell", "Register-ArgumentCompleter"),
        ("elvish", "edit:completion:arg-completer[tapml]"),
    ] {
        let output =
            tapml(folder.path()).args(["completions", shell]).assert().success().get_output().clone();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(mark), "{shell}");
        for word in commands.iter().map(String::as_str).chain(["--target", "--prompts"]) {
            let word = if shell == "fish" { word.trim_start_matches("--") } else { word };
            assert!(text.contains(word), "{shell} does not know {word}");
        }
    }
    let text = stderr(tapml(folder.path()).args(["completions", "tcsh"]), 2);
    assert!(text.contains("[possible values: bash"), "{text}");
}

#[test]
fn bash_completes_a_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tapml.bash");
    let output = tapml(folder.path()).args(["completions", "bash"]).assert().success().get_output().clone();
    std::fs::write(&file, output.stdout).unwrap();
    let script = "source \"$1\"; COMP_WORDS=(tapml mig); COMP_CWORD=1; _tapml tapml mig tapml; echo \"${COMPREPLY[@]}\"";
    let Ok(output) = std::process::Command::new("bash").args(["-c", script, "bash"]).arg(&file).output()
    else {
        tapml_testing::skip("bash", "it is not installed");
        return;
    };
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "migrate", "{:?}", output.stderr);
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    tapml(folder.path()).args(["man", "--out", "man"]).assert().success();
    let page = |name: &str| std::fs::read_to_string(folder.path().join("man").join(name)).unwrap();
    for command in commands() {
        let text = page(&format!("tapml-{command}.1"));
        assert!(text.contains(".SH SYNOPSIS") && text.contains(".SH OPTIONS"), "{command}");
    }
    assert!(page("tapml-check.1").contains("Example"), "{}", page("tapml-check.1"));
    assert!(page("tapml-device-list.1").contains(".TH tapml-device-list 1"));
    let names: Vec<_> =
        std::fs::read_dir(folder.path().join("man")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(
        !names.iter().any(|name| name == "tapml-device-session.1" || name == "tapml-help.1"),
        "{names:?}"
    );

    let output = tapml(folder.path()).arg("man").assert().success().get_output().clone();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), page("tapml.1"));
}

#[test]
fn the_page_of_commands_is_current() {
    let folder = tempfile::tempdir().unwrap();
    let output = tapml(folder.path()).args(["man", "--markdown"]).assert().success().get_output().clone();
    let page = String::from_utf8(output.stdout).unwrap();
    for command in commands() {
        assert!(page.contains(&format!("\n## `tapml {command}`\n")), "{command}");
    }
    tapml_testing::expect_file("docs/reference/commands.md", &page);
    let text = stderr(tapml(folder.path()).args(["man", "--markdown", "--out", "man"]), 2);
    assert!(text.contains("cannot be used with"), "{text}");
}
