//! `tapml device`: the devices of this machine, and the conformance suite against one of them.

use crate::Outcome;
use crate::output::{JsonArg, bytes, table};
use anyhow::Result;
use clap::{Args, Subcommand};
use serde::Serialize;
use tapml::device::{DeviceInfo, conformance};
use tapml::platform::{self, PlatformSpec};

/// Devices here: list them, or check one against what TapML expects of a device.
#[derive(Args)]
#[command(after_help = "Example:\n  tapml device list\n  tapml device check vulkan")]
pub struct DeviceCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List every device this build can use, and say what is missing for the others
    List(#[command(flatten)] JsonArg),
    /// Run the device conformance suite against one device
    Check {
        /// The device: `emulator`, `vulkan`, `vulkan:1`, …
        target: String,
        #[command(flatten)]
        json: JsonArg,
    },
}

#[derive(Serialize)]
struct ListReport {
    schema: u32,
    devices: Vec<DeviceInfo>,
    unavailable: Vec<Unavailable>,
}

#[derive(Serialize)]
struct Unavailable {
    platform: String,
    reason: String,
    hint: Option<String>,
}

#[derive(Serialize)]
struct CheckReport {
    schema: u32,
    target: DeviceInfo,
    passed: usize,
    failed: usize,
    skipped: usize,
    cases: Vec<CaseReport>,
}

#[derive(Serialize)]
struct CaseReport {
    case: &'static str,
    outcome: &'static str,
    reason: Option<String>,
}

impl DeviceCommand {
    pub fn run(self) -> Result<Outcome> {
        match self.action {
            Action::List(json) => list(&json),
            Action::Check { target, json } => check(&target, &json),
        }
    }
}

fn list(json: &JsonArg) -> Result<Outcome> {
    let mut report = ListReport { schema: 1, devices: Vec::new(), unavailable: Vec::new() };
    for word in platform::device_words() {
        match platform::devices(word) {
            Ok(devices) => report.devices.extend(devices),
            Err(error) => report.unavailable.push(Unavailable {
                platform: word.to_string(),
                reason: error.to_string(),
                hint: error.hint().map(str::to_string),
            }),
        }
    }
    let mut rows =
        table(&["PLATFORM", "DEVICE", "DRIVER", "KIND", "F16", "SUBGROUPS", "BINDING", "INVOCATIONS"]);
    let mut previous = ("", 0);
    for d in &report.devices {
        let index = if previous.0 == d.platform { previous.1 + 1 } else { 0 };
        previous = (&d.platform, index);
        let subgroups = d
            .features
            .subgroups
            .map_or("-".into(), |(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
        rows.add_row([
            format!("{}:{index}", d.platform),
            d.name.clone(),
            d.driver.clone(),
            format!("{:?}", d.kind).to_lowercase(),
            if d.features.f16 { "yes" } else { "no" }.into(),
            subgroups,
            bytes(d.limits.max_binding_size),
            d.limits.max_invocations.to_string(),
        ]);
    }
    json.say(&rows.to_string())?;
    for u in &report.unavailable {
        json.say(&format!(
            "{}: {}{}",
            u.platform,
            u.reason,
            u.hint.as_ref().map_or(String::new(), |h| format!(" ({h})"))
        ))?;
    }
    json.write(&report)?;
    Ok(Outcome::Holds)
}

fn check(target: &str, json: &JsonArg) -> Result<Outcome> {
    let spec = PlatformSpec::parse(target)?;
    let mut device = platform::open_device(&spec)?;
    let mut report = CheckReport {
        schema: 1,
        target: device.info().clone(),
        passed: 0,
        failed: 0,
        skipped: 0,
        cases: Vec::new(),
    };
    for case in conformance::cases() {
        let (outcome, reason) = match case.run(device.as_mut()) {
            Ok(conformance::Outcome::Passed) => ("passed", None),
            Ok(conformance::Outcome::Skipped(reason)) => ("skipped", Some(reason)),
            Ok(conformance::Outcome::Failed(reason)) => ("failed", Some(reason)),
            Err(error) => ("failed", Some(error.to_string())),
        };
        match outcome {
            "passed" => report.passed += 1,
            "skipped" => report.skipped += 1,
            _ => report.failed += 1,
        }
        let note = reason.as_ref().map_or(String::new(), |r| format!(": {r}"));
        json.say(&format!("{outcome:8} {}{note}", case.name))?;
        report.cases.push(CaseReport { case: case.name, outcome, reason });
    }
    json.say(&format!("{} passed, {} failed, {} skipped", report.passed, report.failed, report.skipped))?;
    json.write(&report)?;
    Ok(if report.failed == 0 { Outcome::Holds } else { Outcome::Fails })
}
