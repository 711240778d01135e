//! `tapml bench serve`: how a server of OpenAI's API bears many clients.
//!
//! The same seed gives the same load, so that two servers can be compared.

use crate::Outcome;
use crate::output::{JsonArg, table};
use crate::progress::Bar;
use anyhow::Result;
use clap::Args;
use std::time::Duration;
use tapml::server::{LoadLengths, LoadOptions, LoadReport, LoadTimes, measure_load};

/// Measure a server: tokens a second, and how long clients wait, with many of them at once.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tapml bench serve http://127.0.0.1:8080 --clients 8\n  tapml bench serve http://127.0.0.1:8080 --clients 64 --lengths sharegpt --context 512\n  tapml bench serve http://127.0.0.1:8080 --rate 4 --requests 200"
)]
pub struct ServeBenchCommand {
    /// Address of the server, such as http://127.0.0.1:8080
    url: String,
    /// Clients at once, each of which asks again when it has its answer
    #[arg(long, value_name = "N", default_value_t = 8)]
    clients: usize,
    /// Requests a second at random times, in the place of clients that wait for their answers
    #[arg(long, value_name = "R", conflicts_with = "clients")]
    rate: Option<f64>,
    /// Requests in all; eight for each client if not given
    #[arg(long, value_name = "N")]
    requests: Option<usize>,
    /// Tokens of prompts and answers: PROMPT+ANSWER, or `sharegpt` for lengths as published
    #[arg(long, value_name = "LENGTHS", default_value = "512+128")]
    lengths: LoadLengths,
    /// Most tokens of a prompt and its answer together
    #[arg(long, value_name = "N", default_value_t = 4096)]
    context: u32,
    /// Tokens that all prompts begin with
    #[arg(long, value_name = "N", default_value_t = 0)]
    shared_prefix: u32,
    /// The model to ask for; the server's first if not given
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Variable of the environment that holds the key to show
    #[arg(long, value_name = "VARIABLE", default_value = "TAPML_API_KEY")]
    api_key_env: String,
    /// Decides prompts, lengths and times
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Seconds that one request may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    #[command(flatten)]
    json: JsonArg,
}

impl ServeBenchCommand {
    /// Measures; fails the outcome if a request had no whole answer.
    ///
    /// # Errors
    /// If the server does not answer at all.
    pub fn run(self) -> Result<Outcome> {
        let requests = self.requests.unwrap_or(8 * self.clients);
        let options = LoadOptions {
            url: self.url,
            api_key: std::env::var(&self.api_key_env).ok().filter(|key| !key.is_empty()),
            model: self.model,
            clients: self.clients,
            rate: self.rate,
            requests,
            lengths: self.lengths,
            context: self.context,
            shared_prefix: self.shared_prefix,
            seed: self.seed,
            limit: Duration::from_secs(self.timeout),
        };
        let bar = Bar::new();
        bar.stage("requests", requests as u64);
        let report = measure_load(&options, &|_| bar.advance(1))?;
        bar.finish();
        self.json.say(&text(&report))?;
        self.json.write(&report)?;
        Ok(if report.failed == 0 { Outcome::Holds } else { Outcome::Fails })
    }
}

/// The report for people.
fn text(report: &LoadReport) -> String {
    let mut times = table(&["TIME, ms", "MEDIAN", "P99"]);
    let rows = [
        ("to the first token", report.ttft_ms),
        ("between two tokens", report.itl_ms),
        ("to the end", report.e2e_ms),
    ];
    for (name, LoadTimes { median, p99 }) in rows {
        times.add_row([name.to_string(), format!("{median:.1}"), format!("{p99:.1}")]);
    }
    let load = match report.rate {
        Some(rate) => format!("{rate} requests a second"),
        None => format!("{} clients", report.clients),
    };
    let mut lines = vec![
        format!(
            "{} at {}: {load}, {} tokens, seed {}",
            report.model, report.url, report.lengths, report.seed
        ),
        String::new(),
        times.to_string(),
        String::new(),
        format!(
            "{:.1} tokens a second: {} new tokens of {} requests in {:.1} s, {} failed",
            report.output_tps, report.output_tokens, report.requests, report.seconds, report.failed
        ),
    ];
    if let Some(decode) = report.decode_tps {
        lines.push(format!("{decode:.1} tokens a second while all clients were being answered"));
    }
    lines.extend(report.errors.iter().map(|error| format!("  {error}")));
    lines.join("\n")
}
