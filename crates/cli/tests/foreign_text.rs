//! Names and texts of others on their way to a terminal: spelt out, cut, and quoted where a command is printed.
#![allow(clippy::unwrap_used)]

mod common;

use common::{carve_small, changed_kernel, draft, json, kernel, stderr, tapml};

#[test]
fn nothing_of_a_kernel_file_commands_the_terminal_or_fills_it() {
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    let check = |file: &str| {
        let mut command = tapml(folder.path());
        command.arg("check").arg(&suite).args(["--target", "emulator", "--kernel", &format!("rope={file}")]);
        stderr(&mut command, 2)
    };
    let own = std::fs::read_to_string(kernel(folder.path(), "rope")).unwrap();
    let evil = "\u{1b}]0;owned\u{7}\u{1b}[8m\u{9b}2J";
    std::fs::write(folder.path().join("evil.wgsl"), format!("let {evil} = 1;\n{own}")).unwrap();
    let text = check("evil.wgsl");
    assert!(text.contains("\\u{1b}]0;owned\\u{7}"), "{text:?}");
    assert!(!text.contains(|c: char| c.is_control() && c != '\n' && c != '\t'), "{text:?}");
    let long = format!("let {} = ;\n{own}", "x".repeat(900_000));
    std::fs::write(folder.path().join("long.wgsl"), long).unwrap();
    let text = check("long.wgsl");
    assert!(text.len() < 50_000 && text.contains("more bytes)"), "{} bytes", text.len());
}

#[test]
fn the_command_printed_for_a_fault_is_one_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my suite; touch X");
    std::fs::rename(carve_small(folder.path()), &path).unwrap();
    let rope = changed_kernel(folder.path(), "rope", ["b * cosine + a * sine", "b * cosine - a * sine"]);
    let mut command = tapml(folder.path());
    command.args(["diagnose", &draft(), "--target", "emulator?kind=cpu&check=bounds", "--operators"]);
    let report = json(command.args(["--kernel", &rope, "--suite"]).arg(&path), 1);
    let next = report["faults"][0]["reproduce"].as_str().unwrap();
    // A shell that has a `tapml` of its own, which shows its words.
    let script = format!("tapml() {{ printf '<%s>' \"$@\"; }}\n{next}");
    let shell = std::process::Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output();
    let words = String::from_utf8(shell.unwrap().stdout).unwrap();
    assert!(words.starts_with(&format!("<reduce><{}><--case>", path.display())), "{words}");
    assert!(words.contains("<emulator?kind=cpu&check=bounds>"), "{words}");
    assert!(!folder.path().join("X").exists());
}
