//! `tapml serve`: a model behind OpenAI's HTTP API.

use super::engine::{self, EngineArgs};
use crate::Outcome;
use crate::output::{self, JsonArg};
use crate::progress::Bar;
use crate::stopping;
use anyhow::{Result, anyhow};
use clap::Args;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use tapml::engine::EngineOptions;
use tapml::migrate::Stop;
use tapml::rpc::agent;
use tapml::serve::ServeOptions;
use tapml::server::{
    ApiKeys, HttpServer, ServedKind, ServedModel, ServedOptions, ServedShadow, ServerOptions, ServerStopper,
};

/// What a server may need beyond its grace time to tell clients that it ends.
const LAST_WORDS: Duration = Duration::from_secs(6);

/// Serve a model through OpenAI's HTTP API.
///
/// Completions and chats, whole or streamed, for many clients at once, or the vectors of an encoder; `GET /openapi.json`
/// describes all of it.
#[derive(Args)]
#[command(after_help = "Examples:
  tapml serve models/llama --target cpu
  tapml serve MODEL --target cuda --activation f16 --host 0.0.0.0 --api-key-file key.txt
  tapml serve tools/shapes/llama-3.1-8b --random --target cuda --activation f16 --context 1024 --check off

Then:
  curl http://127.0.0.1:8080/v1/completions -H 'Content-Type: application/json' -d '{\"prompt\": \"Once upon a time\"}'")]
pub struct ServeCommand {
    /// Folder in Hugging Face layout, or a GGUF file; with --random its `config.json` is enough
    model: PathBuf,
    /// Make up weights of the configuration's shapes and a word for each id: for measuring speed
    #[arg(long)]
    random: bool,
    #[command(flatten)]
    engine: EngineArgs,
    /// Name or address to listen at
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port to listen at; 0 chooses a free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Key that clients must show; may repeat. The list of processes shows it: the variable TAPML_API_KEY and files do not
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,
    /// File with such a key; made if it does not exist; may repeat
    #[arg(long, value_name = "FILE")]
    api_key_file: Vec<PathBuf>,
    /// Let web pages of this origin use the server, `*` for all; may repeat
    #[arg(long, value_name = "ORIGIN")]
    cors: Vec<String>,
    /// What clients call the model; may repeat. The name of its folder if not given
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Go on with a last message of the assistant instead of answering it, as llama-server does
    #[arg(long)]
    prefill_assistant: bool,
    /// Most answers that are computed at once; others wait
    #[arg(long, value_name = "N", default_value_t = 64)]
    max_sequences: usize,
    /// Most answers that wait; requests beyond it are refused
    #[arg(long, value_name = "N", default_value_t = 1024)]
    queue: usize,
    /// Check this share of the live calls on a source beside the service
    #[arg(long, value_name = "PLATFORM:SHARE")]
    shadow: Option<String>,
    /// Folder for suites of live calls that fail; `.tapml/MODEL-TARGET/shadow` if not given
    #[arg(long, value_name = "DIR", requires = "shadow")]
    shadow_cases: Option<PathBuf>,
    /// Most requests at once, waiting ones included
    #[arg(long, value_name = "N", default_value_t = 256)]
    max_concurrent: usize,
    /// Longest body of a request, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 8 << 20)]
    max_body: usize,
    /// Seconds that a client may take to send the head of a request, and again for its body
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    read_timeout: u64,
    /// Seconds that requests may go on when the server is stopped
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u64,
    #[command(flatten)]
    json: JsonArg,
}

/// What is written as JSON when the server listens.
#[derive(Serialize)]
struct Report {
    schema: u32,
    model: String,
    target: String,
    /// What clients may call the model.
    names: Vec<String>,
    /// Where it listens, such as `127.0.0.1:8080`.
    address: String,
    /// Where OpenAI's clients find it.
    url: String,
    context: usize,
    #[serde(flatten)]
    sizes: ServedSizes,
    /// Calls that were replayed on the target before it serves; absent if there was no check.
    #[serde(skip_serializing_if = "Option::is_none")]
    checked: Option<u64>,
    /// The live calls that are checked beside the service; absent if none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow: Option<ShadowReport>,
}

/// What only one kind of model has.
#[derive(Serialize)]
#[serde(untagged)]
enum ServedSizes {
    /// A language model's pages.
    Pages { pages: usize, page: usize },
    /// An encoder's vectors.
    Embedding { embedding: EmbeddingReport },
}

/// The vectors of an encoder.
#[derive(Serialize)]
struct EmbeddingReport {
    /// Numbers of a vector.
    size: usize,
    /// How the rows of a text become one vector.
    pooling: Vec<&'static str>,
    /// Whether vectors have the length 1.
    normalized: bool,
}

impl ServedSizes {
    fn new(model: &ServedModel) -> ServedSizes {
        match &model.kind {
            ServedKind::Generator(engine) => {
                let limits = engine.limits();
                ServedSizes::Pages { pages: limits.pages, page: limits.page }
            }
            ServedKind::Encoder(encoder) => {
                let options = encoder.options();
                let pooling = options.pooling.iter().map(|mode| mode.name()).collect();
                let (size, normalized) = (encoder.size(), options.normalize);
                ServedSizes::Embedding { embedding: EmbeddingReport { size, pooling, normalized } }
            }
        }
    }
}

/// Live calls that are checked.
#[derive(Serialize)]
struct ShadowReport {
    /// The platform that checks them.
    source: String,
    /// The expected share of calls.
    share: f64,
    /// The folder for suites of calls that fail.
    cases: PathBuf,
}

impl ShadowReport {
    /// Tells a person that calls are checked, too.
    fn new(shadow: &ServedShadow) -> ShadowReport {
        let ServedShadow { source, share, cases, .. } = shadow;
        let percent = share * 100.0;
        let text = format!(
            "up to {percent} % of the calls are checked on `{source}` while it serves; those that fail are left in {}",
            cases.display()
        );
        output::note("shadow", &text);
        ShadowReport { source: source.clone(), share: *share, cases: cases.clone() }
    }
}

impl ServeCommand {
    /// Serves until the user stops it.
    ///
    /// # Errors
    /// If the model cannot be served, or the address not be listened at.
    pub fn run(self) -> Result<Outcome> {
        let grace = Duration::from_secs(self.grace);
        let stop = stopping::stop_server_on_signal_within(grace.saturating_add(LAST_WORDS))?;
        let bar = Bar::at_stage("read the model");
        let job = self.job();
        let options = self.options()?;
        let open = options.keys.is_empty();
        // Brackets keep the colons of an address apart from that before the port.
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let address = format!("{host}:{}", self.port);
        let served = self.served_options();
        served.check()?;
        // Whoever has the port is told before a large model is loaded.
        HttpServer::check_address(&address)?;
        let serving = job.load(&bar, &stop)?;
        let checked = engine::note_check(&serving, &bar);
        let model = served.start(serving)?;
        let shadow = bar.suspend(|| model.shadow.as_ref().map(ShadowReport::new));
        let sizes = ServedSizes::new(&model);
        let (names, model_context) = (model.names.clone(), model.context());
        let server = HttpServer::bind(&address, model, options)?;
        bar.finish();
        let address = server.address();
        if open && !address.ip().is_loopback() {
            let text = "other machines can use the server without a key; `--api-key-file FILE` asks for one";
            output::note("warning", text);
        }
        let url = format!("http://{address}/v1");
        // The line is what a script waits for: the port is open by now.
        self.json.say(&format!("serving {} at {url}", names.join(", ")))?;
        self.json.write(&Report {
            schema: 1,
            model: self.model.display().to_string(),
            target: job.target,
            names,
            address: address.to_string(),
            url,
            context: model_context,
            sizes,
            checked,
            shadow,
        })?;
        std::io::stdout().flush()?;
        stop_when_asked(server.stopper(), stop);
        server.serve()?;
        output::note("stopped", "no request is open");
        Ok(Outcome::Holds)
    }

    /// How the model is told and answers.
    fn served_options(&self) -> ServedOptions {
        let served = self.engine.served_options();
        ServedOptions {
            names: self.name.clone(),
            prefill: self.prefill_assistant,
            engine: EngineOptions { queue: self.queue, ..served.engine },
            ..served
        }
    }

    fn job(&self) -> ServeOptions {
        ServeOptions {
            sequences: self.max_sequences,
            random: self.random,
            shadow: self.shadow.clone(),
            shadow_cases: self.shadow_cases.clone(),
            ..self.engine.job(&self.model)
        }
    }

    /// The server's settings. Files of keys are made if they are not there.
    fn options(&self) -> Result<ServerOptions> {
        let mut keys = self.api_key.clone();
        keys.extend(std::env::var("TAPML_API_KEY").ok());
        if keys.iter().any(String::is_empty) {
            return Err(anyhow!("a key of the server must not be empty"));
        }
        for file in &self.api_key_file {
            keys.push(agent::token_file(file)?);
        }
        Ok(ServerOptions {
            keys: ApiKeys::new(&keys),
            origins: self.cors.clone(),
            max_body: self.max_body,
            max_concurrent: self.max_concurrent,
            read_timeout: Duration::from_secs(self.read_timeout),
            grace: Duration::from_secs(self.grace),
            ..ServerOptions::default()
        })
    }
}

/// Ctrl-C and SIGTERM end the server in order.
fn stop_when_asked(stopper: ServerStopper, stop: Stop) {
    std::thread::spawn(move || {
        // A signal handler can only set the request: a thread looks at it.
        while stop.check().is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
        stopper.stop();
    });
}
