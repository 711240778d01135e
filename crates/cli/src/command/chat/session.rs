//! A conversation with a model: turns that fit the context, and what slash commands do to it. Reads no input.

use super::conversation::Conversation;
use super::input::{self, SlashCommand};
use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use serde_json::{Value, json};
use tapml::engine::{EngineStats, Finish};
use tapml::files;
use tapml::server::{LocalAnswer, LocalChat};

/// The largest file of an image or of saved messages, bytes.
const MAX_FILE: u64 = 64 << 20;
/// Of the context, one part in so many is kept for an answer while older turns can make room.
const ROOM: usize = 4;

/// A chat under way.
pub struct ChatSession {
    chat: LocalChat,
    conversation: Conversation,
    last: Option<TurnReport>,
}

/// One turn as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct TurnReport {
    schema: u32,
    /// What the model said.
    message: Value,
    /// Why it ended: `stop`, `length` or `cancelled`.
    pub finish_reason: &'static str,
    usage: Value,
    /// As llama-server tells them.
    timings: Value,
    /// From the request to the first token.
    first_token_ms: f64,
    guesses: GuessReport,
    /// The oldest messages, which the model is not given from this turn on.
    pub dropped_messages: usize,
    /// Whether the answer ends because the context is full.
    pub context_full: bool,
}

/// Guessed tokens of a turn.
#[derive(Clone, Debug, Serialize)]
struct GuessReport {
    /// Those that were compared with the model's choice.
    compared_tokens: u64,
    /// Those that were right.
    accepted_tokens: u64,
}

/// What happens while a message is answered.
pub enum AnswerEvent<'a> {
    /// So many of the oldest messages do not fit any longer, and the model is not given them from here on.
    Dropped(usize),
    /// A piece of the answer, of whole characters.
    Text(&'a str),
}

/// What a slash command leaves to its caller.
pub enum NextStep {
    /// This is to be told.
    Report(String),
    /// The last message is to be answered again.
    Answer,
    /// The end.
    Quit,
}

impl ChatSession {
    /// Begins with a conversation.
    pub fn new(chat: LocalChat, conversation: Conversation) -> ChatSession {
        ChatSession { chat, conversation, last: None }
    }

    /// Most tokens of all messages and an answer.
    pub fn context(&self) -> usize {
        self.chat.context()
    }

    /// Answers a message, or the last one again if there is none; `on_event` is told what happens. Nothing but a success changes the
    /// conversation.
    ///
    /// # Errors
    /// If the message alone does not fit the context, the chat template refuses it, the engine fails, or the answer was stopped
    /// before anything was said.
    pub fn answer(
        &mut self,
        message: Option<&str>,
        is_stopped: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(AnswerEvent),
    ) -> Result<TurnReport> {
        let mut conversation = self.conversation.clone();
        match message {
            Some(text) => conversation.ask(text),
            None => conversation.ask_again()?,
        }
        let dropped_messages = self.fit(&mut conversation)?;
        if dropped_messages > 0 {
            on_event(AnswerEvent::Dropped(dropped_messages));
        }
        let before = self.chat.stats()?;
        let on_text = &mut |text: &str| on_event(AnswerEvent::Text(text));
        let answer = self.chat.answer(&conversation.request(), is_stopped, on_text)?;
        if answer.text.is_empty() && answer.finish == Finish::Cancelled {
            return Err(anyhow!("stopped before anything was said; the message is not kept"));
        }
        conversation.answer(&answer.text);
        let report = report(&answer, [before, self.chat.stats()?], dropped_messages, self.context());
        (self.conversation, self.last) = (conversation, Some(report.clone()));
        Ok(report)
    }

    /// Drops the oldest messages until there is room for an answer; gives their number.
    fn fit(&self, conversation: &mut Conversation) -> Result<usize> {
        let context = self.context();
        let room = conversation.max_tokens().unwrap_or(usize::MAX).min(context / ROOM).max(1);
        let mut dropped = 0;
        loop {
            let tokens = self.chat.count_tokens(&conversation.request())?;
            if tokens.saturating_add(room) <= context {
                return Ok(dropped);
            }
            let count = conversation.drop_oldest();
            if count > 0 {
                dropped += count;
                continue;
            }
            // The answer to a long message may be short.
            if tokens <= context {
                return Ok(dropped);
            }
            let text = format!(
                "the message, with the system prompt, has {tokens} tokens and the context holds {context}; it is not kept"
            );
            return Err(tapml::Error::invalid(text)
                .with_hint("send a shorter one, or give more --context")
                .into());
        }
    }

    /// Does what a slash command asks for.
    ///
    /// # Errors
    /// If it cannot be done; then nothing has changed.
    pub fn obey(&mut self, command: SlashCommand) -> Result<NextStep> {
        Ok(NextStep::Report(match command {
            SlashCommand::Help => input::help(),
            SlashCommand::Reset => {
                self.conversation.reset();
                "the conversation begins anew".into()
            }
            SlashCommand::System(text) => {
                let told = if text.is_some() { "is set" } else { "is removed" };
                self.conversation.set_system(text);
                format!("the system prompt {told}")
            }
            SlashCommand::Image(path) => {
                let bytes = files::read(&path, MAX_FILE, "an image")?;
                let place = || path.display().to_string();
                let count = self.conversation.attach(self.chat.image_part(&bytes).with_context(place)?);
                format!("{} goes with the next message, image {count} of it", path.display())
            }
            SlashCommand::Stats => {
                let last = self.last.as_ref().ok_or_else(|| anyhow!("there is no answer yet"))?;
                last.stats(self.context())
            }
            SlashCommand::Regenerate => return Ok(NextStep::Answer),
            SlashCommand::Undo => {
                self.conversation.undo()?;
                "the last turn is taken back".into()
            }
            SlashCommand::Save(path) => {
                let text = serde_json::to_string_pretty(&self.conversation.message_list())?;
                files::write(&path, (text + "\n").as_bytes())?;
                format!("the messages are in {}", path.display())
            }
            SlashCommand::Load(path) => self.load(&path)?,
            SlashCommand::Set(None) => match self.conversation.settings() {
                none if none.is_empty() => "nothing is set".into(),
                settings => settings,
            },
            SlashCommand::Set(Some((name, value))) => {
                let mut conversation = self.conversation.clone();
                conversation.set(&name, value.as_deref())?;
                check(&conversation)?;
                self.conversation = conversation;
                value.map_or(format!("{name} is left to the model"), |value| format!("{name} is {value}"))
            }
            SlashCommand::Quit => return Ok(NextStep::Quit),
        }))
    }

    fn load(&mut self, path: &std::path::Path) -> Result<String> {
        let place = || path.display().to_string();
        let text = files::read_text(path, MAX_FILE, "saved messages")?;
        let mut conversation = self.conversation.clone();
        conversation.load(serde_json::from_str(&text).with_context(place)?).with_context(place)?;
        if conversation.message_list().as_array().is_some_and(|messages| !messages.is_empty()) {
            LocalChat::check(&conversation.request()).with_context(place)?;
        }
        let open = if conversation.is_open() { "; /regenerate answers the last one" } else { "" };
        let count = conversation.message_list().as_array().map_or(0, Vec::len);
        self.conversation = conversation;
        Ok(format!("{count} messages are loaded{open}"))
    }
}

/// Fails if a setting is wrong.
pub fn check(conversation: &Conversation) -> Result<()> {
    let mut request = conversation.request();
    // Some field has to be there to be read.
    request["messages"] = json!([{ "role": "user", "content": "" }]);
    Ok(LocalChat::check(&request)?)
}

fn report(
    answer: &LocalAnswer,
    stats: [EngineStats; 2],
    dropped_messages: usize,
    context: usize,
) -> TurnReport {
    let usage = &answer.usage;
    let [before, after] = stats;
    TurnReport {
        schema: 1,
        message: json!({ "role": "assistant", "content": answer.text }),
        finish_reason: answer.finish_reason(),
        usage: answer.usage_fields(),
        timings: answer.timings(),
        first_token_ms: answer.first_token().as_secs_f64() * 1e3,
        guesses: GuessReport {
            compared_tokens: after.compared_tokens - before.compared_tokens,
            accepted_tokens: after.accepted_tokens - before.accepted_tokens,
        },
        dropped_messages,
        // The last token needs no place.
        context_full: answer.finish_reason() == "length" && usage.prompt_tokens + usage.new_tokens > context,
    }
}

impl TurnReport {
    /// What `/stats` tells.
    fn stats(&self, context: usize) -> String {
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let share = |part: f64, whole: f64| 100.0 * part / whole.max(1.0);
        let (timings, prompt) = (&self.timings, number(&self.usage["prompt_tokens"]));
        let (cached, new) = (number(&timings["cache_n"]), number(&timings["predicted_n"]));
        let mut text = format!(
            "prompt: {prompt} tokens, {cached} of them in the prefix cache ({:.0} %), the others at {:.1} tokens/s\n\
             answer: {new} tokens at {:.1} tokens/s, the first after {:.3} s\n\
             context: {} of {context} tokens",
            share(cached, prompt),
            number(&timings["prompt_per_second"]),
            number(&timings["predicted_per_second"]),
            self.first_token_ms / 1e3,
            prompt + new,
        );
        let GuessReport { compared_tokens, accepted_tokens } = self.guesses;
        if compared_tokens > 0 {
            let percent = share(accepted_tokens as f64, compared_tokens as f64);
            text.push_str(&format!(
                "\nguesses: {accepted_tokens} of {compared_tokens} were right ({percent:.0} %)"
            ));
        }
        text
    }
}
