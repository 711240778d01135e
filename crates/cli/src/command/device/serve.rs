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
use tapml::offer::{AgentOptions, Local};
use tapml::rpc::agent::{self, Isolation};

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
        let options = self.options();
        // Before the line is printed: whoever reads it may connect.
        let agent = options.open(Some(self.isolation()?))?;
        let mut out = std::io::stdout();
        // Port 0 means that the agent does not listen.
        if agent.address().port() > 0 {
            let scheme = if options.is_encrypted() { "wss" } else { "ws" };
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

    /// What the agent is to do.
    fn options(&self) -> AgentOptions {
        AgentOptions {
            listen: self.listen.clone(),
            hubs: self.hub.clone(),
            name: self.name.clone(),
            token_file: self.token_file.clone(),
            tls_cert: self.tls_cert.clone(),
            tls_key: self.tls_key.clone(),
            targets: self.target.clone(),
            insecure: self.insecure,
            sessions: self.sessions,
            deadline: self.deadline,
            idle: self.idle,
            memory: self.memory,
            cache: self.cache.clone(),
            cache_bytes: self.cache_bytes,
            temporary: None,
            origins: self.allow_origin.clone(),
        }
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
