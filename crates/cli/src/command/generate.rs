//! `tapml generate`: text from a model, streamed, on any platform.
//!
//! Text appears as it is made. Standard output has the text alone, unless JSON takes it.

use super::common::{self, GraphArgs, SamplingArgs};
use crate::Outcome;
use crate::output::{self, JsonArg};
use crate::progress::Bar;
use crate::stopping;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use tapml::engine::{Finish, GenerateOptions, Generation, Generator, Sampler, Tokenizer, generate_text};
use tapml::exec::{Interface, Session};
use tapml::import::{Checkpoint, LogitRows};
use tapml::migrate::Stop;
use tapml::model::expect_context;
use tapml::prompts::Given;
use tapml::shown;

/// Generate text from a prompt.
#[derive(Args)]
#[command(
    after_help = "Example:\n  tapml generate models/llama --target vulkan --prompt 'Once upon a time' --max-tokens 64"
)]
pub struct GenerateCommand {
    /// Folder in Hugging Face layout, or a GGUF file
    model: PathBuf,
    /// Text of the prompt
    #[arg(long, required_unless_present = "ids", conflicts_with = "ids")]
    prompt: Option<String>,
    /// Token ids instead of text, such as 0,17,42; needs no tokenizer
    #[arg(long, value_parser = common::parse_ids)]
    ids: Option<std::vec::Vec<u32>>,
    /// Image for the prompt, PNG, JPEG or WebP, if the model sees
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Where to run; the fastest device present if not given, else cpu
    #[arg(long, value_name = "PLATFORM")]
    target: Option<String>,
    /// Use this source instead of the built-in kernel of an operator; may repeat
    #[arg(long, value_name = "OP=FILE")]
    kernel: Vec<String>,
    /// At most this many new tokens
    #[arg(long, default_value_t = 128)]
    max_tokens: usize,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Do not end at the model's end-of-text token
    #[arg(long)]
    ignore_eos: bool,
    /// Continue the prompt as it is, even if the checkpoint has a chat template
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    graph: GraphArgs,
    #[command(flatten)]
    json: JsonArg,
}

/// What is written as JSON.
#[derive(Serialize)]
struct Report {
    schema: u32,
    model: String,
    target: String,
    /// The prompt as the model was given it, template included.
    prompt_ids: Vec<u32>,
    /// What was generated.
    ids: Vec<u32>,
    /// Empty where ids were given instead of text.
    text: String,
    /// Why it ended.
    finish: &'static str,
    seconds: Seconds,
}

/// How long it took.
#[derive(Serialize)]
struct Seconds {
    /// The prompt.
    prefill: f64,
    /// All tokens after the first.
    decode: f64,
}

impl GenerateCommand {
    /// Generates until the model ends, a limit is reached, or the user stops it.
    ///
    /// # Errors
    /// If the model gives no logits, the prompt does not fit the context, or the platform does not run it. Being
    /// stopped is an error too, after what was generated was printed.
    pub fn run(self) -> Result<Outcome> {
        let stop = stopping::stop_on_signal()?;
        let bar = Bar::at_stage("read the model");
        let target = self.target.clone().unwrap_or_else(|| tapml::platform::fastest().to_string());
        let (graph, target) = self.graph.for_target(&target)?;
        let (checkpoint, model) = graph.open(&self.model, LogitRows::Last)?;
        Interface::from_graph(model.graph())?.expect_logits()?;
        // Ids need no tokenizer, which a checkpoint may lack.
        let tokenizer = match self.ids {
            Some(_) => None,
            None => Some(Tokenizer::open(checkpoint.dir())?),
        };
        let given = Given {
            text: self.prompt.as_deref(),
            ids: self.ids.as_deref(),
            image: self.image.as_deref(),
            chat: !self.raw,
        };
        let (prompt, image) = given.read(&checkpoint, tokenizer.as_ref())?;
        expect_context(prompt.len(), 0, checkpoint.context())?;
        bar.stage(&format!("compile for {target}"), 0);
        let mut platform = common::open_platform(&target, &self.kernel)?;
        // Caches are sized for what can be used.
        let context = checkpoint.context().min(prompt.len().saturating_add(self.max_tokens));
        let options = self.options(&checkpoint);
        // Greedy choices can stay on the device; others need the logits here.
        let session = if options.sampling.is_greedy() {
            Session::greedy(platform.as_mut(), &model, context, None)?
        } else {
            Session::new(platform.as_mut(), &model, context)?
        };
        let mut generator = Generator::new(session);
        generator.look_at(image)?;
        // Wrong sampling options are told before the prompt is read.
        Sampler::new(options.sampling.clone())?;
        bar.stage("read the prompt", 0);
        let (text, generation) = match &tokenizer {
            None => {
                let go_on =
                    |stopped: bool| if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
                let mut each = |_| Ok(go_on(stop.check().is_err()));
                let generation = generator.generate(&prompt, &options, &mut each)?;
                bar.finish();
                self.say_ids(&generation)?;
                (String::new(), generation)
            }
            Some(tokenizer) => self.stream(&mut generator, tokenizer, (&prompt, &options), (&stop, &bar))?,
        };
        stop.check()?;
        self.finish(&target, prompt, text, generation)
    }

    /// The options as the library takes them.
    fn options(&self, checkpoint: &Checkpoint) -> GenerateOptions {
        GenerateOptions {
            max_tokens: self.max_tokens,
            sampling: self.sampling.options(),
            stop_ids: if self.ignore_eos { Vec::new() } else { checkpoint.eos().to_vec() },
        }
    }

    /// Generates and prints each piece of text at once.
    fn stream(
        &self,
        generator: &mut Generator<Session>,
        tokenizer: &Tokenizer,
        (prompt, options): (&[u32], &GenerateOptions),
        (stop, bar): (&Stop, &Bar),
    ) -> Result<(String, Generation)> {
        let on_stdout = self.json.on_stdout();
        // A file or a pipe is given every character.
        let safe = output::is_terminal(on_stdout);
        let print = |text: &str| {
            bar.finish();
            output::print_at_once(on_stdout, &if safe { shown::whole(text) } else { text.into() })
        };
        // Text that goes on is easier to read behind its prompt; a chat's answer stands alone.
        if let Some(prompt) =
            self.prompt.as_deref().filter(|_| self.raw || tokenizer.chat_template().is_none())
        {
            print(prompt)?;
        }
        // The closure can only end generation: its error is kept for afterwards.
        let mut failed = None;
        let mut on_text = |piece: &str| match print(piece) {
            Ok(()) if stop.check().is_err() => ControlFlow::Break(()),
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        };
        let result = generate_text(generator, tokenizer, prompt, options, &self.sampling.stop, &mut on_text)?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        print("\n")?;
        Ok((result.text, result.generation))
    }

    /// Prints ids where no tokenizer makes text of them.
    fn say_ids(&self, generation: &Generation) -> Result<()> {
        let ids: Vec<String> = generation.ids.iter().map(u32::to_string).collect();
        self.json.say(&ids.join(","))
    }

    /// Tells the speed, and writes the report.
    fn finish(
        self,
        target: &str,
        prompt_ids: Vec<u32>,
        text: String,
        generation: Generation,
    ) -> Result<Outcome> {
        let count = generation.ids.len();
        let (prefill, decode) = (generation.prefill.as_secs_f64(), generation.decode.as_secs_f64());
        // The first token is made with the prompt: it does not count as decoded.
        let rate = |tokens: usize, seconds: f64| if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
        crate::output::note(
            target,
            &format!(
                "{} prompt tokens in {prefill:.3} s, {count} new ones at {:.1} tokens/s",
                prompt_ids.len(),
                rate(count.saturating_sub(1), decode)
            ),
        );
        self.json.write(&Report {
            schema: 1,
            model: self.model.display().to_string(),
            target: target.to_string(),
            prompt_ids,
            ids: generation.ids,
            text,
            finish: finish_name(generation.finish),
            seconds: Seconds { prefill, decode },
        })?;
        Ok(Outcome::Holds)
    }
}

/// The word for JSON; kinds that are added later are cancellations to it.
fn finish_name(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::Context => "context",
        _ => "cancelled",
    }
}
