//! `tapml chat`: a conversation with a model in the terminal, or with lines that a script pipes.
//!
//! Answers go to standard output, and all else to standard error.

mod conversation;
mod input;
mod session;
mod terminal;

use super::common::SamplingArgs;
use super::engine::{self, EngineArgs};
use crate::Outcome;
use crate::output::{self, JsonArg};
use crate::progress::Bar;
use crate::stopping::{self, StoppablePart};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use conversation::Conversation;
use input::{Input, InputLines, SlashCommand};
use serde::Serialize;
use serde_json::{Map, Value};
use session::{AnswerEvent, ChatSession, NextStep, TurnReport};
use std::cell::{Cell, RefCell};
use std::io::{BufRead, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use tapml::migrate::Stop;
use tapml::serve::ServeOptions;
use tapml::server::{LocalChat, ServedOptions};
use tapml::shown;
use terminal::{LineReader, Typed};

/// Where a model is looked for if none is given, after the current folder.
const USUAL_MODEL: &str = "models/llama";
/// The longest line that is read, bytes.
const MAX_LINE: u64 = 16 << 20;
/// Texts that are computed at once: one, beside pages for what the prefix cache keeps.
const TEXTS: usize = 2;

/// Chat with a model in the terminal.
///
/// Without a terminal each line of standard input is a message, and a text between """ and """ too. `/help` tells what else
/// a line may say.
#[derive(Args)]
#[command(after_help = "Examples:
  tapml chat models/llama --target cpu
  tapml chat MODEL --activation f16 --quantize q4 --temperature 0.7
  printf 'Hello\\nAnd in French?\\n' | tapml chat MODEL --json -")]
pub struct ChatCommand {
    /// Folder in Hugging Face layout, or a GGUF file; that of the current folder if not given, else models/llama
    model: Option<PathBuf>,
    /// Answer this message alone and end
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// Set the system prompt
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Image for the first message, PNG, JPEG or WebP, if the model sees; may repeat
    #[arg(long, value_name = "FILE")]
    image: Vec<PathBuf>,
    /// At most this many new tokens in an answer; as many as the context holds if not given
    #[arg(long)]
    max_tokens: Option<usize>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// Write one JSON object a turn to this file, a line each; `-` for standard output
    #[arg(long, value_name = "FILE", value_parser = output::writable())]
    json: Option<PathBuf>,
}

/// A turn that gave no answer, as JSON.
#[derive(Serialize)]
struct FailedTurnReport {
    schema: u32,
    error: String,
}

/// Where answers and reports go.
struct Speaker {
    json: JsonArg,
    /// Lines of reports for a file, which is written whole after each turn.
    lines: String,
}

impl ChatCommand {
    /// Chats until the input ends.
    ///
    /// # Errors
    /// If the model cannot be loaded, an option is wrong, the only message is not answered, or the user stops the work outside
    /// of an answer in the terminal.
    pub fn run(self) -> Result<Outcome> {
        let stop = stopping::stop_on_signal()?;
        let conversation = Conversation::new(self.system.clone(), self.settings()?);
        session::check(&conversation)?;
        let bar = Bar::at_stage("read the model");
        let model = self.model.clone().map_or_else(usual_model, Ok)?;
        let job = ServeOptions { fit_context: true, sequences: TEXTS, ..self.engine.job(&model) };
        let served = ServedOptions { plain: true, ..self.engine.served_options() };
        served.check()?;
        let serving = job.load(&bar, &stop)?;
        engine::note_check(&serving, &bar);
        let most = serving.checkpoint.context();
        let model = served.start(serving)?;
        let has_template = self.engine.chat_template.is_some() || model.tokenizer.chat_template().is_some();
        let mut session = ChatSession::new(LocalChat::new(model)?, conversation);
        bar.finish();
        self.note_model(&job, &session, most);
        if !has_template {
            let text = "the model has none: it goes on with the text of the conversation and does not answer; \
                        `--chat-template FILE` gives one";
            output::note("template", text);
        }
        for image in &self.image {
            session.obey(SlashCommand::Image(image.clone()))?;
        }
        let mut speaker = Speaker { json: JsonArg { json: self.json }, lines: String::new() };
        if let Some(message) = &self.message {
            speaker.turn(&mut session, Some(message), &|| stop.check().is_err())?;
            stop.check()?;
            return Ok(Outcome::Holds);
        }
        let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        if terminal && !speaker.json.on_stdout() {
            return speaker.talk(&mut session);
        }
        speaker.read(&mut session, &stop)
    }

    /// The options as fields of requests.
    fn settings(&self) -> Result<Map<String, Value>> {
        let sampling = self.sampling.options();
        // The shortest number of that value: another one would be shown.
        let number = |value: f32| value.to_string().parse::<f64>().map(Value::from);
        let mut settings = Map::new();
        settings.insert("temperature".into(), number(sampling.temperature)?);
        for (name, value) in [
            ("top_p", sampling.top_p),
            ("min_p", sampling.min_p),
            ("repetition_penalty", sampling.repetition_penalty),
        ] {
            if let Some(value) = value {
                settings.insert(name.into(), number(value)?);
            }
        }
        for (name, value) in [("top_k", sampling.top_k), ("max_tokens", self.max_tokens)] {
            if let Some(value) = value {
                settings.insert(name.into(), value.into());
            }
        }
        settings.insert("seed".into(), sampling.seed.cast_signed().into());
        if !self.sampling.stop.is_empty() {
            settings.insert("stop".into(), self.sampling.stop.clone().into());
        }
        Ok(settings)
    }

    /// Tells which model runs where, and how to choose others.
    fn note_model(&self, job: &ServeOptions, session: &ChatSession, most: usize) {
        let mut text = format!("{} on {}", job.model.display(), job.target);
        let context = session.context();
        let missing = [
            self.model.is_none().then_some("MODEL"),
            self.engine.target.is_none().then_some("--target PLATFORM"),
        ];
        let missing: Vec<&str> = missing.into_iter().flatten().collect();
        if !missing.is_empty() {
            text.push_str(&format!("; `tapml chat {}` chooses otherwise", missing.join(" ")));
        }
        output::note("model", &text);
        if context < most && self.engine.context.is_none() {
            output::note("context", &format!("{context} of {most} tokens, which is what --memory holds"));
        }
    }
}

/// The model of the current folder, else the bundled one.
fn usual_model() -> Result<PathBuf> {
    let is_model = |folder: &Path| folder.join("config.json").is_file();
    if is_model(Path::new(".")) {
        return Ok(".".into());
    }
    let files = std::fs::read_dir(".").context("could not read the current folder")?;
    let paths = files.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "gguf")).collect();
    match found.pop() {
        Some(file) if found.is_empty() => Ok(file),
        Some(_) => Err(anyhow!("the current folder has several GGUF files: name one, `tapml chat FILE`")),
        None if is_model(Path::new(USUAL_MODEL)) => Ok(USUAL_MODEL.into()),
        None => Err(anyhow!(
            "no model was given, and neither the current folder nor {USUAL_MODEL} has one: `tapml chat MODEL`"
        )),
    }
}

impl Speaker {
    /// A person in the terminal, who sees errors and goes on.
    fn talk(&mut self, session: &mut ChatSession) -> Result<Outcome> {
        output::note("chat", "/help tells the commands; Ctrl-C ends an answer, Ctrl-D the chat");
        stopping::end_on_signal();
        let (mut reader, mut lines) = (LineReader::open()?, InputLines::default());
        loop {
            let typed = match reader.read(lines.is_open())? {
                Typed::End => break,
                Typed::Interrupt => {
                    lines.clear();
                    continue;
                }
                Typed::Line(line) => lines.push(&line),
            };
            let Some(input) = typed else { continue };
            reader.keep_history();
            let part = StoppablePart::begin();
            match self.take(session, &input, &|| part.is_stopped()) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if output::is_broken_pipe(&error) => return Err(error),
                Err(error) => output::print_error(&error),
            }
        }
        Ok(Outcome::Holds)
    }

    /// Lines without a terminal. What fails is told, and the next lines are read all the same.
    fn read(&mut self, session: &mut ChatSession, stop: &Stop) -> Result<Outcome> {
        let (mut input, mut lines) = (std::io::stdin().lock(), InputLines::default());
        let mut outcome = Outcome::Holds;
        loop {
            let (found, ends) = match read_line(&mut input) {
                Ok(Some(line)) => (Ok(lines.push(&line)), false),
                Ok(None) => (lines.finish(), true),
                Err(error) => (Err(error), true),
            };
            let done = match found {
                Ok(Some(input)) => self.take(session, &input, &|| stop.check().is_err()),
                Ok(None) => Ok(true),
                Err(error) => Err(error),
            };
            stop.check()?;
            match done {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if output::is_broken_pipe(&error) => return Err(error),
                Err(error) => {
                    outcome = Outcome::Fails;
                    self.report(&FailedTurnReport { schema: 1, error: format!("{error:#}") })?;
                    output::print_error(&error);
                }
            }
            if ends {
                break;
            }
        }
        Ok(outcome)
    }

    /// Does what the input says; false if that is to end.
    fn take(
        &mut self,
        session: &mut ChatSession,
        input: &Input,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let message = match input {
            Input::Message(text) => Some(text.as_str()),
            Input::Slash(line) => match session.obey(SlashCommand::parse(line)?)? {
                NextStep::Quit => return Ok(false),
                NextStep::Report(text) => {
                    writeln!(std::io::stderr(), "{}", shown::report(&text, false))?;
                    return Ok(true);
                }
                NextStep::Answer => None,
            },
        };
        self.turn(session, message, is_stopped)?;
        Ok(true)
    }

    /// Answers a message, or the last one again.
    fn turn(
        &mut self,
        session: &mut ChatSession,
        message: Option<&str>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<()> {
        let on_stderr = self.json.on_stdout();
        // A file or a pipe is given every character.
        let safe = output::is_terminal(on_stderr);
        let (begun, failed) = (Cell::new(false), RefCell::new(None));
        let print = |text: &str| {
            begun.set(true);
            let text = if safe { shown::whole(text) } else { text.into() };
            if let Err(error) = output::print_at_once(on_stderr, &text) {
                *failed.borrow_mut() = Some(error);
            }
        };
        let ends = || is_stopped() || failed.borrow().is_some();
        let answer = session.answer(message, &ends, &mut |event| match event {
            AnswerEvent::Dropped(count) => note_dropped(count),
            AnswerEvent::Text(text) => print(text),
        });
        // What failed before it began leaves no line.
        if begun.get() || answer.is_ok() {
            print("\n");
        }
        if let Some(error) = failed.take() {
            return Err(error.into());
        }
        let report = answer?;
        note_end(&report, session.context());
        self.report(&report)
    }

    /// Adds a line of JSON if that is wanted.
    fn report(&mut self, report: &impl Serialize) -> Result<()> {
        let line = shown::json(&serde_json::to_string(report)?) + "\n";
        if self.json.on_stdout() {
            output::print_at_once(false, &line)?;
        } else if let Some(file) = self.json.file() {
            self.lines.push_str(&line);
            tapml::files::write(file, self.lines.as_bytes())?;
        }
        Ok(())
    }
}

/// Tells what the model is not given, which a reader should know before the answer.
fn note_dropped(count: usize) {
    let text = format!("the {count} oldest messages are dropped to make room; the system prompt stays");
    output::note("context", &text);
}

/// Tells why an answer ends where it does.
fn note_end(report: &TurnReport, context: usize) {
    match report.finish_reason {
        "cancelled" => output::note("stopped", "what was said is kept"),
        "length" if report.context_full => {
            output::note("context", &format!("the answer ends here: all {context} tokens are in use"));
        }
        "length" => output::note("length", "the answer ends at max_tokens"),
        _ => {}
    }
}

/// A line without its end; `None` where there are no more.
///
/// # Errors
/// If it is too long or not UTF-8.
fn read_line(input: &mut impl BufRead) -> Result<Option<String>> {
    let mut bytes = Vec::new();
    input.take(MAX_LINE).read_until(b'\n', &mut bytes).context("could not read standard input")?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.len() as u64 == MAX_LINE {
        return Err(anyhow!("a line of standard input has more than {MAX_LINE} bytes"));
    }
    let text = String::from_utf8(bytes).context("standard input is not UTF-8")?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(Some(text.strip_suffix('\r').unwrap_or(text).into()))
}
