//! `tapml device`: the devices of this machine and of others, and the conformance suite against one of them.
//!
//! Devices of this machine, of an agent and of a hub are listed alike, each with the word that `--target` takes.

mod check;
mod hub;
mod nodes;
mod operators;
mod reports;
mod serve;
mod speed;

use crate::Outcome;
use crate::output::{JsonArg, bytes, table};
use crate::stopping;
use anyhow::Result;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::path::PathBuf;
use tapml::device::DeviceInfo;
use tapml::offer::{Local, Offer, Offered};
use tapml::platform::PlatformSpec;
use tapml::rpc::client::OperatorDevice;
use tapml::rpc::{Address, client, wire};

/// Devices here and elsewhere: list them, offer them, or check one against what TapML expects of a device.
#[derive(Args)]
#[command(
    after_help = "Example:\n  tapml device list\n  tapml device check vulkan\n  tapml device serve\n  tapml device list ws://127.0.0.1:7070\n  tapml device hub\n  tapml device list hub"
)]
pub struct DeviceCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List every device this build can use, and say what is missing for the others
    List {
        /// The address of an agent, such as `ws://host:7070`, or `hub`; this machine if not given
        agent: Option<String>,
        #[command(flatten)]
        json: JsonArg,
    },
    Serve(serve::ServeArgs),
    Hub(hub::HubArgs),
    #[command(hide = true)]
    Session(serve::SessionArgs),
    /// Run the conformance suite against one device; against one of an agent, also the rules of the wire
    Check {
        /// The device: `emulator`, `vulkan`, `vulkan:1`, `ws://host:7070/vulkan`, `hub/webgpu`, …
        target: String,
        /// Also run every operator and fused operator on its samples by every kernel that serves them, judged as a suite's
        /// calls are
        #[arg(long)]
        ops: bool,
        /// Also measure how soon it answers and how fast 16 MiB go there and back
        #[arg(long)]
        speed: bool,
        /// Instead, run ONNX's node tests, judged as a suite's calls are: the folder `onnx/backend/test/data/node` of the Python
        /// package onnx 1.21.0
        #[arg(long, value_name = "DIR", conflicts_with_all = ["ops", "speed"])]
        nodes: Option<PathBuf>,
        #[command(flatten)]
        json: JsonArg,
    },
    /// Show what pages found that checked the device they run on: the files that a site of `tapml compile` saves
    Reports {
        /// Files that visitors sent
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        json: JsonArg,
    },
}

/// What is written as JSON.
#[derive(Serialize)]
struct ListReport {
    schema: u32,
    /// Devices that run kernels.
    devices: Vec<DeviceLine>,
    /// Devices that run operators.
    operators: Vec<Operators>,
    /// Words that nothing answers to here, and why.
    unavailable: Vec<Unavailable>,
}

/// A device, and how a hub stands to it.
#[derive(Serialize)]
struct DeviceLine {
    /// Its fields stand beside the others.
    #[serde(flatten)]
    info: DeviceInfo,
    /// The word to ask for.
    target: String,
    /// Only of a device behind a hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    hub: Option<AtHub>,
}

/// A device that runs operators itself.
#[derive(Serialize)]
struct Operators {
    /// The word to ask for.
    target: String,
    /// What its agent calls the platform.
    platform: String,
    name: String,
    driver: String,
    /// Operators that it announces.
    ops: Vec<String>,
}

/// What a hub knows about a device.
#[derive(Serialize)]
struct AtHub {
    /// Who serves it.
    agent: String,
    /// Sessions open now, and at most.
    busy: u32,
    /// At most.
    sessions: u32,
}

/// A platform that cannot be used.
#[derive(Serialize)]
struct Unavailable {
    platform: String,
    /// What is missing.
    reason: String,
    /// What to do about it.
    hint: Option<String>,
}

impl DeviceCommand {
    /// Runs the action. Agents and hubs install handlers of their own for being stopped.
    pub fn run(self) -> Result<Outcome> {
        // Servers are stopped in another way, and sessions by their agent.
        if let Action::List { .. } | Action::Check { .. } = self.action {
            stopping::listen()?;
        }
        match self.action {
            Action::List { agent, json } => list(agent.as_deref(), &json),
            Action::Serve(serve) => serve.run(),
            Action::Hub(hub) => hub.run(),
            Action::Session(session) => session.run(),
            Action::Reports { files, json } => reports::show(&files, &json),
            Action::Check { target, nodes: Some(nodes), json, .. } => nodes::check(&target, &nodes, &json),
            Action::Check { target, ops, speed, nodes: None, json } => {
                check::check(&target, ops, speed, &json)
            }
        }
    }
}

/// Devices with the word to ask for, or why there is none.
type Listing = (Vec<(Offered, Option<AtHub>)>, Vec<Operators>);

/// Every device that runs kernels, words without any, and devices that run operators.
///
/// # Errors
/// If the agent or the hub does not answer.
fn list_devices(agent: Option<&str>) -> Result<Listing> {
    let Some(agent) = agent else {
        return Ok((
            Local::default().list().into_iter().map(|offered| (offered, None)).collect(),
            Vec::new(),
        ));
    };
    // Addresses are written as platforms are: a word, and options behind a `?`.
    let spec = PlatformSpec::parse(agent)?;
    let address = Address::parse(&spec.word, &spec.options)?;
    let target = |name: &str| {
        // A hub's devices are asked for by the word `hub`, wherever it is.
        if address.hub {
            format!("hub/{name}")
        } else {
            // An address may end in a slash.
            format!("{}/{name}", spec.word.trim_end_matches('/'))
        }
    };
    let named = |offer: wire::Offer| {
        let at_hub = AtHub { agent: offer.agent.clone(), busy: offer.busy, sessions: offer.sessions };
        let (name, info) = client::read_offer(offer);
        ((target(&name), info), address.hub.then_some(at_hub))
    };
    let (mut devices, mut others) = (Vec::new(), Vec::new());
    // Offers of devices that run operators say so; all others are of kernels.
    for offer in client::offers(&address)? {
        match client::operators(&offer) {
            Some(Ok(OperatorDevice { name, info, ops })) => others.push(Operators {
                target: target(&name),
                platform: info.platform,
                name: info.device,
                driver: info.driver,
                ops: ops.into_iter().map(|op| op.name).collect(),
            }),
            // An agent that tells it wrongly is listed with the reason.
            Some(Err(error)) => devices.push(((target(&offer.name), Err(error)), None)),
            None => devices.push(named(offer)),
        }
    }
    Ok((devices, others))
}

/// Prints the devices, then what else there is.
fn list(agent: Option<&str>, json: &JsonArg) -> Result<Outcome> {
    let (devices, operators) = list_devices(agent)?;
    let mut report = ListReport { schema: 1, devices: Vec::new(), operators, unavailable: Vec::new() };
    for ((target, info), hub) in devices {
        match info {
            Ok(info) => report.devices.push(DeviceLine { info, target, hub }),
            Err(error) => report.unavailable.push(Unavailable {
                platform: target,
                reason: error.to_string(),
                hint: error.hint().map(str::to_string),
            }),
        }
    }
    // Columns of hubs would be empty elsewhere.
    let at_hub = report.devices.iter().any(|d| d.hub.is_some());
    let mut head = vec!["PLATFORM", "DEVICE", "DRIVER", "KIND", "F16", "SUBGROUPS"];
    head.extend(["MATRICES", "BINDING", "INVOCATIONS"]);
    head.extend(if at_hub { ["AGENT", "SESSIONS"].as_slice() } else { &[] });
    let mut rows =
        table(&head).with_optional(&["BINDING", "INVOCATIONS", "MATRICES", "SUBGROUPS", "KIND", "F16"]);
    for d in &report.devices {
        rows.add_row(row(d));
    }
    // A header without rows tells that there is nothing at all.
    if !report.devices.is_empty() || report.operators.is_empty() {
        json.say(&rows.to_string())?;
    }
    for o in &report.operators {
        json.say(&format!("{}: {} ({}) runs operators: {}", o.target, o.name, o.driver, o.ops.join(", ")))?;
    }
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

/// The cells of a device, in the order of the header.
fn row(device: &DeviceLine) -> Vec<String> {
    let d = &device.info;
    // The least and the greatest size, which are often equal.
    let subgroups = d
        .features
        .subgroups
        .map_or("-".into(), |(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    let mut row = vec![
        device.target.clone(),
        d.name.clone(),
        d.driver.clone(),
        format!("{:?}", d.kind).to_lowercase(),
        if d.features.f16 { "yes" } else { "no" }.into(),
        subgroups,
        if d.features.matrices { "yes" } else { "-" }.into(),
        bytes(d.limits.max_binding_size),
        d.limits.max_invocations.to_string(),
    ];
    if let Some(hub) = &device.hub {
        row.extend([hub.agent.clone(), format!("{} of {}", hub.busy, hub.sessions)]);
    }
    row
}
