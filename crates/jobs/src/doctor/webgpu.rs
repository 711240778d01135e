//! A browser, whose tab offers its GPU to a hub.
//!
//! Whether WebGPU works in it can be told only within a tab, which the hub's page does.

use super::part::{PartKind, PartState, PlatformPart};
use super::subprocess;
use std::process::Command;
use std::time::Duration;

/// Programs that run WebGPU, by their names on the path.
const BROWSERS: [&str; 6] =
    ["google-chrome", "google-chrome-stable", "chromium", "chromium-browser", "microsoft-edge", "firefox"];
/// How long one may take to say its version.
const LIMIT: Duration = Duration::from_secs(10);

/// The first browser on the path.
pub(super) fn find_browser() -> PlatformPart {
    let version = |name: &&str| subprocess::output(Command::new(name).arg("--version"), LIMIT).ok();
    let found = BROWSERS.iter().find_map(|name| Some((name, version(name)?)));
    match found {
        Some((_, text)) => PlatformPart::new("webgpu", PartKind::Browser, PartState::Installed)
            .with_name(text.lines().next().unwrap_or_default().trim())
            .with_reason("a tab of it can offer its GPU", Some("start `tapml device hub` and open its page")),
        None => PlatformPart::new("webgpu", PartKind::Browser, PartState::Missing).with_reason(
            "no browser on the path",
            Some(
                "start `tapml device hub` and open its page in a browser with WebGPU, here or elsewhere: \
                  Chrome, Edge or Chromium from 113 on",
            ),
        ),
    }
}
