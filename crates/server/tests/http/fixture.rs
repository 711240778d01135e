//! A server on a model without weights.

use super::client::get;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tapml_engine::{
    Batch, BatchLimits, BatchRunner, ChatTemplate, EmbeddingModel, EmbeddingOptions, EncoderLimits, Engine,
    EngineOptions, StepLogits, TextEncoder, Tokenizer, WantedLogits,
};
use tapml_graph::{Error, ErrorKind, Result};
use tapml_server::{HttpServer, ServedKind, ServedModel, ServerOptions, ServerStopper};

/// Ends a text.
pub const END: u32 = 1;
/// What the model is called.
pub const NAME: &str = "fake";
/// As templates are.
const TEMPLATE: &str = "{% if tools %}[tools] {{ tools | tojson }}\n{% endif %}\
                        {% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}\
                        {% if add_generation_prompt %}[assistant]{% endif %}";

/// The next token is a function of all tokens before it, which are read from the pages.
struct FakeRunner {
    limits: BatchLimits,
    /// The token of each position of each page.
    pages: Vec<u32>,
    step_time: Duration,
    /// Tokens that follow one another.
    script: Vec<u32>,
    /// While it is set, no step runs and no reset succeeds.
    lost: Arc<AtomicBool>,
}

impl FakeRunner {
    /// The script's next token after these, the end of a text behind its last.
    fn next(&self, before: &[u32]) -> Option<u32> {
        if self.script.is_empty() {
            return None;
        }
        let longest = (0..=self.script.len()).rev().find(|&length| before.ends_with(&self.script[..length]));
        Some(self.script.get(longest.unwrap_or(0)).copied().unwrap_or(END))
    }

    fn check_device(&self) -> Result<()> {
        if self.lost.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::DeviceLost, "the plug was pulled"));
        }
        Ok(())
    }

    fn row(&self, hash: u64) -> Vec<f32> {
        let vocab = self.limits.vocab;
        let mix = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let mut row: Vec<f32> = (0..vocab as u64).map(|id| (mix(hash ^ id) % 1024) as f32 / 512.0).collect();
        // Special tokens are chosen only where a bias wants them.
        row[..3].fill(-50.0);
        row[3 + (mix(hash) as usize) % (vocab - 3)] = 8.0;
        row
    }
}

impl BatchRunner for FakeRunner {
    fn limits(&self) -> BatchLimits {
        self.limits
    }

    fn step(&mut self, batch: &Batch) -> Result<Vec<StepLogits>> {
        thread::sleep(self.step_time);
        self.check_device()?;
        let page = self.limits.page;
        let mut all = Vec::new();
        for sequence in &batch.sequences {
            let place = |position: usize| sequence.pages[position / page] as usize * page + position % page;
            for (id, position) in sequence.ids.iter().zip(sequence.start..) {
                self.pages[place(position)] = *id;
            }
            let mut hash = 0_u64;
            let mut before = Vec::new();
            let mut logits = Vec::new();
            let end = sequence.start + sequence.ids.len();
            for position in 0..end {
                before.push(self.pages[place(position)]);
                hash = (hash ^ u64::from(self.pages[place(position)])).wrapping_mul(0x0100_0000_01B3) + 1;
                let wanted = match sequence.wanted {
                    WantedLogits::Nothing => false,
                    WantedLogits::Last => position + 1 == end,
                    WantedLogits::All => position >= sequence.start,
                };
                if wanted {
                    logits.extend(self.row(hash));
                    if let Some(next) = self.next(&before) {
                        let row = logits.len() - self.limits.vocab;
                        logits[row + next as usize] = 100.0;
                    }
                }
            }
            all.push(StepLogits::Full(logits));
        }
        Ok(all)
    }

    fn reset(&mut self) -> Result<()> {
        self.check_device()?;
        self.pages.fill(0);
        Ok(())
    }
}

/// Hidden states that follow from ids and positions alone.
struct FakeEncoder {
    limits: EncoderLimits,
    text_time: Duration,
}

impl TextEncoder for FakeEncoder {
    fn limits(&self) -> EncoderLimits {
        self.limits
    }

    fn encode(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        thread::sleep(self.text_time);
        Ok(ids.iter().zip(1_u8..).flat_map(|(id, at)| state(*id, at)).collect())
    }

    fn reset(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The hidden state of a token, counted from 1.
pub fn state(id: u32, at: u8) -> [f32; 4] {
    [id as f32, f32::from(at), -1.0, 0.5]
}

/// What a test wants to be different.
pub struct Wishes {
    pub server: ServerOptions,
    pub engine: EngineOptions,
    pub step_time: Duration,
    pub context: usize,
    pub pages: usize,
    pub sequences: usize,
    /// Its chat template; empty for none.
    pub template: &'static str,
    /// What the model writes.
    pub script: &'static str,
    /// Whether a last message of the assistant is gone on with.
    pub prefill: bool,
    /// Set while the device is lost.
    pub lost: Arc<AtomicBool>,
}

impl Default for Wishes {
    fn default() -> Wishes {
        Wishes {
            server: ServerOptions { grace: Duration::from_secs(5), ..ServerOptions::default() },
            engine: EngineOptions::default(),
            step_time: Duration::ZERO,
            context: 256,
            pages: 256,
            sequences: 64,
            template: TEMPLATE,
            script: "",
            prefill: false,
            lost: Arc::default(),
        }
    }
}

/// A server that ends with this.
pub struct Fixture {
    pub address: SocketAddr,
    pub stopper: ServerStopper,
    thread: Option<JoinHandle<Result<()>>>,
}

pub fn tokenizer() -> Tokenizer {
    Tokenizer::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/llama")).unwrap()
}

impl Fixture {
    pub fn start() -> Fixture {
        Fixture::start_with(Wishes::default())
    }

    pub fn start_with(wishes: Wishes) -> Fixture {
        let tokenizer = tokenizer();
        let limits = BatchLimits {
            page: 8,
            pages: wishes.pages,
            rows: 64,
            sequences: wishes.sequences,
            context: wishes.context,
            vocab: tokenizer.vocab(),
            states: 0,
            length_limit: None,
            window: None,
        };
        let pages = vec![0; limits.page * limits.pages];
        let runner = FakeRunner {
            limits,
            pages,
            step_time: wishes.step_time,
            script: tokenizer.encode_plain(wishes.script).unwrap(),
            lost: wishes.lost,
        };
        let template = (!wishes.template.is_empty())
            .then(|| ChatTemplate::new(wishes.template, tokenizer.special()).unwrap());
        let model = ServedModel {
            names: vec![NAME.into(), "alias/of it".into()],
            tokenizer,
            template,
            stop_ids: vec![END],
            prefill: wishes.prefill,
            vision: None,
            kind: ServedKind::Generator(Engine::start(Box::new(runner), wishes.engine).unwrap()),
            shadow: None,
        };
        Fixture::start_model(model, wishes.server)
    }

    /// A server of vectors. Each is a function of the text's tokens and of the options.
    pub fn start_encoder(options: EmbeddingOptions) -> Fixture {
        let tokenizer = tokenizer();
        let limits = EncoderLimits { context: 32, vocab: tokenizer.vocab(), width: 4 };
        let encoder = FakeEncoder { limits, text_time: Duration::from_millis(1) };
        let encoder = EmbeddingModel::start(Box::new(encoder), options).unwrap();
        let kind = ServedKind::Encoder(encoder);
        let (names, stop_ids) = (vec![NAME.into()], Vec::new());
        let (template, vision, shadow) = (None, None, None);
        let model =
            ServedModel { names, tokenizer, template, stop_ids, prefill: false, vision, kind, shadow };
        Fixture::start_model(model, Wishes::default().server)
    }

    fn start_model(model: ServedModel, options: ServerOptions) -> Fixture {
        let server = HttpServer::bind("127.0.0.1:0", model, options).unwrap();
        let (address, stopper) = (server.address(), server.stopper());
        let thread = Some(thread::spawn(move || server.serve()));
        Fixture { address, stopper, thread }
    }

    /// Waits until the server has ended.
    pub fn join(mut self) -> Result<()> {
        self.thread.take().unwrap().join().unwrap()
    }

    pub fn health(&self) -> Value {
        get(self.address, "/health").json()
    }

    /// Waits until nothing runs and no page is in use.
    #[track_caller]
    pub fn wait_idle(&self) {
        let start = Instant::now();
        loop {
            let health = self.health();
            if health["running"] == 0 && health["waiting"] == 0 && health["pages_used"] == 0 {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "still at work: {health}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}
