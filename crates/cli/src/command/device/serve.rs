//! `tapml device serve`: offers this machine's devices to clients elsewhere, each session in a process of its own. It
//! listens, or dials a hub.

use crate::Outcome;
use crate::output;
use crate::stopping;
use anyhow::{Context, Result};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tapml::offer::Local;
use tapml::rpc::Address;
use tapml::rpc::agent::{self, Agent, Config, Hub, Isolation, Settings};

/// Offer this machine's devices: `--target ws://host:port/NAME` then uses them from elsewhere
#[derive(Args)]
#[command(after_help = "Examples:
  tapml device serve
  tapml device serve --listen 0.0.0.0:7070 --token-file token.txt --tls-cert cert.pem --tls-key key.pem
  tapml device serve --hub 'wss://lab:7071?token-file=token.txt' --name lab3")]
pub struct ServeArgs {
    /// Address and port to listen at; port 0 chooses a free one. 127.0.0.1:7070 if neither this nor --hub is given
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Dial this hub, so that clients find this machine's devices there; with options as for devices, such as
    /// `wss://lab:7071?token-file=token.txt`. Several joined by commas are one after the other; may repeat for several at once
    #[arg(long, value_name = "URL")]
    hub: Vec<String>,
    /// The name to be known by at the hub; this machine's name if not given
    #[arg(long, value_name = "NAME", requires = "hub")]
    name: Option<String>,
    /// File with the token that clients must show; made if it does not exist. Required unless only this machine can connect
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificate chain (PEM) for TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key (PEM) for TLS
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Offer only this device, with these options; may repeat. All devices if not given
    #[arg(long, value_name = "PLATFORM")]
    target: Vec<String>,
    /// Allow plain text where other machines can connect
    #[arg(long)]
    insecure: bool,
    /// Most sessions at once
    #[arg(long, value_name = "N", default_value_t = 8)]
    sessions: usize,
    /// Seconds that one request may run before its process is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    deadline: u64,
    /// Seconds that a client may send nothing before its session is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    idle: u64,
    /// Bytes of buffers that a session may have
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 40)]
    memory: u64,
    /// Folder that keeps what clients have uploaded, so that it is not sent again; a temporary one if not given
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Bytes that this folder may hold
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 30)]
    cache_bytes: u64,
    /// Let web pages of this origin connect; may repeat
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
}

/// Serves one session on standard input. Agents start it.
#[derive(Args)]
pub struct SessionArgs {
    /// As given to the agent
    #[arg(long, value_name = "PLATFORM")]
    target: Vec<String>,
}

/// Ctrl-C ends an agent or a hub.
pub fn stop_on_signal(stopper: agent::Stopper) -> Result<()> {
    let stop = stopping::stop_server_on_signal()?;
    std::thread::spawn(move || {
        // A signal handler can only set the request: a thread looks at it.
        while stop.check().is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
        stopper.stop();
    });
    Ok(())
}

impl SessionArgs {
    /// Runs the session of this process.
    pub fn run(&self) -> Result<Outcome> {
        agent::run_session(&Local::new(&self.target)?)?;
        Ok(Outcome::Holds)
    }
}

impl ServeArgs {
    /// Serves until the user stops it.
    pub fn run(&self) -> Result<Outcome> {
        // Devices that are not here are told at once.
        Local::new(&self.target)?;
        // Before the line is printed: whoever reads it may connect.
        let agent = self.agent()?;
        let mut out = std::io::stdout();
        // Port 0 means that the agent does not listen.
        if agent.address().port() > 0 {
            let scheme = if self.tls_cert.is_some() { "wss" } else { "ws" };
            let place = format!("{scheme}://{}", agent.address());
            writeln!(out, "serving at {place}; `tapml device list {place}` shows the devices")?;
        }
        for hub in &self.hub {
            writeln!(out, "serving hub {hub}; `tapml device list hub?hub={hub}` shows the devices")?;
        }
        out.flush()?;
        stop_on_signal(agent.stopper())?;
        agent.serve()?;
        output::note("stopped", "all sessions are ended");
        Ok(Outcome::Holds)
    }

    /// The agent: it listens unless only hubs are dialled.
    fn agent(&self) -> Result<Agent> {
        let mut agent = match (&self.listen, self.hub.is_empty()) {
            // Whoever names a hub alone need not open a port.
            (None, false) => Agent::new(self.config()?, self.isolation()?)?,
            (listen, _) => {
                let listen = listen.as_deref().unwrap_or("127.0.0.1:7070");
                Agent::bind(listen, self.config()?, self.isolation()?)?
            }
        };
        for url in &self.hub {
            let address = Address::parse("hub", &[("hub".into(), url.clone())])?;
            agent.join(Hub { address, name: self.name.clone().unwrap_or_else(agent::default_name) });
        }
        Ok(agent)
    }

    /// The agent's settings. A file of a token is made if it is not there.
    fn config(&self) -> Result<Config> {
        let tls = match (&self.tls_cert, &self.tls_key) {
            // `clap` demands both or neither.
            (Some(cert), Some(key)) => Some(tapml::rpc::tls::server(cert, key)?),
            _ => None,
        };
        Ok(Config {
            token: self.token_file.as_deref().map(agent::token_file).transpose()?,
            tls,
            insecure: self.insecure,
            origins: self.allow_origin.clone(),
            sessions: self.sessions,
            settings: Settings {
                deadline: Duration::from_secs(self.deadline),
                idle: Duration::from_secs(self.idle),
                memory: self.memory,
            },
            blobs: self.cache.clone(),
            blob_bytes: self.cache_bytes,
            ..Config::default()
        })
    }

    /// Every session is this very program once more.
    /// A driver that crashes takes only the session with it.
    fn isolation(&self) -> Result<Isolation> {
        let program = std::env::current_exe().context("this program does not find itself")?;
        let targets = self.target.clone();
        Ok(Isolation::Process(Arc::new(move || {
            let mut command = Command::new(&program);
            command.args(["device", "session"]);
            for target in &targets {
                command.args(["--target", target]);
            }
            command
        })))
    }
}
