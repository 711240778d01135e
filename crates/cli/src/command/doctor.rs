//! `tapml doctor`: what this machine has to run models on, what is missing, and how to install it.
//!
//! The examination is the library's; here its parts are put in order for people.

use crate::Outcome;
use crate::output::{JsonArg, table};
use crate::progress::Bar;
use anyhow::Result;
use clap::Args;
use tapml::doctor::{Doctor, Examination, PartKind, PartState, PlatformPart};

/// Say what this machine has, what is missing, and how to install it.
///
/// Every device is opened and adds two vectors. Other runtimes are looked up in Python; those that are named are started.
///
/// Exit codes: 0 what is here works, and so do the platforms that are named; 1 something is broken, or a named platform is
/// missing; 2 the command could not run.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tapml doctor\n  tapml doctor cuda ort\n  TAPML_PYTHON=venv/bin/python tapml doctor --json report.json"
)]
pub struct DoctorCommand {
    /// Look at these platforms only: `vulkan`, `cuda`, `ort`, …
    #[arg(value_name = "PLATFORM")]
    platforms: Vec<String>,
    #[command(flatten)]
    json: JsonArg,
}

impl DoctorCommand {
    /// Examines the machine, or the platforms that are named.
    pub fn run(self) -> Result<Outcome> {
        let doctor = Doctor::new(&self.platforms)?;
        let bar = Bar::new();
        let found = doctor.run(&bar);
        bar.finish();
        self.json.say(&describe(&found))?;
        self.json.write(&found)?;
        Ok(if doctor.holds(&found) { Outcome::Holds } else { Outcome::Fails })
    }
}

/// The parts for people: a table of those that can be used, then the others with the reason and what to do.
fn describe(found: &Examination) -> String {
    let Examination { version, os, arch, processors, parts, .. } = found;
    let mut text = format!("tapml {version} on {os}, {arch}, {processors} processors\n\n");
    let mut rows = table(&["PLATFORM", "PART", "STATE", "NAME", "VERSION"]);
    for part in parts.iter().filter(|part| part.is_usable()) {
        let [name, version] = [&part.name, &part.version].map(|text| text.clone().unwrap_or_default());
        rows.add_row([part.platform.clone(), word(part.part), word(part.state), name, version]);
    }
    text += &rows.to_string();
    // What is broken comes first: it is here and was meant to work.
    for (title, state) in [("Broken", PartState::Broken), ("Missing", PartState::Missing)] {
        let groups = groups(parts, state);
        text += if groups.is_empty() { "" } else { "\n\n" };
        text += if groups.is_empty() { "" } else { title };
        for (names, part) in groups {
            text += &format!(
                "\n  {}: {}",
                names.join(", "),
                part.reason.as_deref().unwrap_or("no reason is known")
            );
            text += &part.hint.as_ref().map_or(String::new(), |hint| format!("\n      {hint}"));
        }
    }
    text
}

/// The parts in a state, those with the same reason and advice together.
/// Each stands where its first part would.
fn groups(parts: &[PlatformPart], state: PartState) -> Vec<(Vec<String>, &PlatformPart)> {
    let mut groups: Vec<(Vec<String>, &PlatformPart)> = Vec::new();
    for part in parts.iter().filter(|part| part.state == state) {
        let name = match part.part {
            PartKind::Compiler => format!("{} (compiler)", part.platform),
            _ => part.platform.clone(),
        };
        // One missing library may be the reason of several platforms.
        match groups.iter_mut().find(|(_, first)| first.reason == part.reason && first.hint == part.hint) {
            Some((names, _)) => names.push(name),
            None => groups.push((vec![name], part)),
        }
    }
    groups
}

/// The name of a variant in lower case.
fn word(value: impl std::fmt::Debug) -> String {
    format!("{value:?}").to_lowercase()
}
