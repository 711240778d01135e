//! `tapml compile --out`: a site from which a browser runs a model.

use super::CompileCommand;
use crate::Outcome;
use crate::output::bytes;
use crate::progress::Bar;
use anyhow::{Result, bail};
use serde::Serialize;
use std::path::Path;
use std::time::Instant;
use tapml::dry_run::{Lengths, Target};
use tapml::site::{Site, SiteJob};

/// What is written as JSON.
#[derive(Serialize)]
struct SiteReport {
    schema: u32,
    model: String,
    out: String,
    #[serde(flatten)]
    site: Site,
    seconds: f64,
}

impl CompileCommand {
    /// Writes the site and tells what it holds.
    ///
    /// # Errors
    /// As [`SiteJob::run`].
    pub(super) fn write_site(&self, model: &Path, out: &Path, started: Instant) -> Result<Outcome> {
        let target = match self.target.as_slice() {
            [] => SiteJob::TARGETS[0],
            [target] => target,
            targets => bail!("a site is for one target, found {}", targets.join(", ")),
        };
        let job = SiteJob {
            model: model.to_path_buf(),
            out: out.to_path_buf(),
            overwrite: self.overwrite,
            target: Target::find(target)?,
            quantize: self.quantize,
            lengths: Lengths { step_tokens: self.step_tokens, positions: self.positions },
            suite: !self.no_suite,
        };
        let bar = Bar::at_stage("write the site");
        let site = job.run()?;
        bar.finish();
        let report = SiteReport {
            schema: 1,
            model: model.display().to_string(),
            out: out.display().to_string(),
            site,
            seconds: started.elapsed().as_secs_f64(),
        };
        self.json.say(&render(&report))?;
        self.json.write(&report)?;
        Ok(Outcome::Holds)
    }
}

/// What the folder holds, and what to do next.
fn render(SiteReport { out, site, .. }: &SiteReport) -> String {
    let shards = if site.shards == 1 { "1 shard".into() } else { format!("{} shards", site.shards) };
    let mut text = format!(
        "{out}: {} of weights in {shards}, {} of other files; texts of up to {} tokens",
        bytes(site.weight_bytes),
        bytes(site.other_bytes),
        site.context,
    );
    for program in &site.programs {
        text += &format!(
            "\n{}: activations in {}, {} of memory, {} rows of the kernel list",
            program.file.file,
            program.activation,
            bytes(program.memory.peak()),
            program.rows.len(),
        );
        if let Some(suite) = &program.suite {
            text += &format!("; {} recorded calls check a device", suite.count);
        }
    }
    text + "\nserve the folder over https, or for a try here: python3 -m http.server --directory " + out
}
