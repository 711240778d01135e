//! `tapml device hub`: where agents dial in that cannot be dialled, and clients ask for devices.

use super::serve::stop_on_signal;
use crate::Outcome;
use crate::output;
use anyhow::Result;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use tapml::broker::HubTable;
use tapml::rpc::agent;
use tapml::rpc::hub::{Config, Hub, Peers};

/// Let agents dial in, browser tabs among them: `--target hub/NAME` then uses their devices
#[derive(Args)]
#[command(after_help = "Examples:
  tapml device hub
  tapml device hub --listen 0.0.0.0:7071 --token-file token.txt --tls-cert cert.pem --tls-key key.pem

Then, on the machine with the devices and on that of the user:
  tapml device serve --hub 'wss://lab:7071?token-file=token.txt' --name lab3
  TAPML_HUB='wss://lab:7071?token-file=token.txt' tapml check SUITE --target hub/vulkan")]
pub struct HubArgs {
    /// Address and port to listen at; port 0 chooses a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7071")]
    listen: String,
    /// File with the token that clients and agents must show; made if it does not exist. Required unless only this machine
    /// can connect
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with another token for agents, which then cannot use devices; made if it does not exist
    #[arg(long, value_name = "FILE", requires = "token_file")]
    agent_token_file: Option<PathBuf>,
    /// Certificate chain (PEM) for TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key (PEM) for TLS
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Allow plain text where other machines can connect
    #[arg(long)]
    insecure: bool,
    /// Most clients at once, waiting ones included
    #[arg(long, value_name = "N", default_value_t = 1024)]
    clients: usize,
    /// Let web pages of this origin connect, beside the hub's own; may repeat
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Share agents, leases and queues with the hubs of other hosts through this broker: `nats://host:4222`, a NATS server
    /// with JetStream; several addresses joined by commas
    #[arg(long, value_name = "URL")]
    broker: Option<String>,
    /// Which of the broker's groups of hubs this one belongs to
    #[arg(long, value_name = "NAME", default_value = "lab", requires = "broker")]
    group: String,
    /// Where other hubs reach this one, such as `wss://lab1:7071`; where it listens if not given. Required with 0.0.0.0
    #[arg(long, value_name = "URL", requires = "broker")]
    advertise: Option<String>,
    /// Certificates (PEM) to trust at other hubs beside the system's
    #[arg(long, value_name = "FILE", requires = "broker")]
    peer_ca: Option<PathBuf>,
}

impl HubArgs {
    /// Serves until the user stops it.
    ///
    /// # Errors
    /// If the address cannot be listened at, or the broker or a file cannot be read.
    pub fn run(&self) -> Result<Outcome> {
        let hub = Hub::bind(&self.listen, self.config()?)?;
        // One port serves clients, agents and the page for browsers.
        let (scheme, page) = if self.tls_cert.is_some() { ("wss", "https") } else { ("ws", "http") };
        let (place, page) = (format!("{scheme}://{}", hub.address()), format!("{page}://{}/", hub.address()));
        // The line is what a script waits for: it is flushed at once.
        let mut out = std::io::stdout();
        writeln!(
            out,
            "hub at {place}; `tapml device serve --hub {place}` offers a machine, {page} a browser"
        )?;
        out.flush()?;
        // The port is open by now, so that a client which read the line can connect.
        stop_on_signal(hub.stopper())?;
        hub.serve()?;
        output::note("stopped", "all sessions are ended");
        Ok(Outcome::Holds)
    }

    /// The other hubs, if a broker tells them.
    fn peers(&self) -> Result<Option<Peers>> {
        let Some(broker) = &self.broker else { return Ok(None) };
        let table = Arc::new(HubTable::connect(broker, &self.group)?);
        Ok(Some(Peers { table, url: self.advertise.clone(), ca: self.peer_ca.clone() }))
    }

    /// The hub's settings. Files of tokens are made if they are not there.
    fn config(&self) -> Result<Config> {
        let tls = match (&self.tls_cert, &self.tls_key) {
            // `clap` demands both or neither.
            (Some(cert), Some(key)) => Some(tapml::rpc::tls::server(cert, key)?),
            _ => None,
        };
        Ok(Config {
            token: self.token_file.as_deref().map(agent::token_file).transpose()?,
            agent_token: self.agent_token_file.as_deref().map(agent::token_file).transpose()?,
            tls,
            insecure: self.insecure,
            origins: self.allow_origin.clone(),
            clients: self.clients,
            peers: self.peers()?,
        })
    }
}
