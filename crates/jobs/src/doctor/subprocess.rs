//! What a short-lived program prints, within a time limit.
//!
//! The error is a text for people, not a `Result` of the library: a missing program is a finding.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The standard output of a program that ends with code 0 within the limit; else why there is none.
pub(super) fn output(command: &mut Command, limit: Duration) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    // No input: a program that asks something ends instead of waiting.
    let pipes = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().map_err(|error| format!("could not start `{name}`: {error}"))?;
    let until = Instant::now() + limit;
    // What is printed here fits in a pipe: a program that prints more is ended.
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        if Instant::now() > until {
            drop(child.kill());
            drop(child.wait());
            return Err(format!("`{name}` did not end within {} s", limit.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    if output.status.success() {
        return Ok(out);
    }
    let last = err.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(if last.starts_with(&name) { last.to_string() } else { format!("{name}: {last}") })
}
