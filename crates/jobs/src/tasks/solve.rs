//! Tasks given to an engine, all at once, as a server would be given them.

use super::file::Task;
use crate::model::GraphOptions;
use crate::serve::{LoadedModel, ServeOptions, Serving};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tapml_engine::{
    Engine, EngineOptions, NgramOptions, Request, RequestEvent, RequestHandle, RequestOptions, Sampling,
    Tokenizer,
};
use tapml_exec::PlatformInfo;
use tapml_graph::{Error, Result};
use tapml_migrate::{Progress, Stop};

/// How often whoever waits for tokens looks whether to stop.
const LOOK: Duration = Duration::from_millis(100);
/// Tokens that an answer may have beyond twice those of the right one: a wrong one need not end.
const MORE_TOKENS: usize = 16;

/// One way to solve tasks: a model, a target, a quantisation, guesses.
#[derive(Clone, Debug)]
pub struct TaskRun {
    /// The model and the small one that guesses, if any; the context is what the tasks need.
    pub serve: ServeOptions,
    /// At most this many tokens are guessed from the text.
    pub ngram: Option<usize>,
}

/// What a model answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskAnswer {
    /// The task's.
    pub id: String,
    /// The task's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The right answer.
    pub expected: String,
    /// What came up to the end of the line, without the spaces around it.
    pub answer: String,
    /// Whether the two are the same.
    pub solved: bool,
}

/// What the engine tells of all tasks.
pub(super) struct Solved {
    pub platform: PlatformInfo,
    /// Guesses that were compared, and those that were right.
    pub compared_tokens: u64,
    pub accepted_tokens: u64,
    /// From the first prompt to the last answer.
    pub seconds: f64,
}

/// A task in tokens.
pub(super) struct TaskTokens {
    /// What the model is given.
    pub prompt: Vec<u32>,
    /// The same with the right answer.
    pub whole: Vec<u32>,
    /// Most tokens of the answer.
    most: usize,
}

impl TaskTokens {
    /// The tokens of tasks for the model of this path, whose context is `context`.
    ///
    /// # Errors
    /// If a task does not fit, with its line.
    pub fn encode(tasks: &[Task], tokenizer: &Tokenizer, context: usize) -> Result<Vec<TaskTokens>> {
        let encode = |task: &Task| {
            let prompt = tokenizer.encode(&task.prompt)?;
            let whole = tokenizer.encode(&format!("{}{}", task.prompt, task.answer))?;
            let answer = tokenizer.encode_plain(&task.answer)?.len();
            if prompt.is_empty() || prompt.len() + answer > context {
                let (prompt, place) = (prompt.len(), &task.place);
                let text = format!(
                    "{place}: the prompt has {prompt} tokens and its answer {answer}; the model takes 1 to {context}"
                );
                return Err(
                    Error::invalid(text).with_hint("leave the task out, or take a model of a longer context")
                );
            }
            let most = (2 * answer + MORE_TOKENS).min(context - prompt.len());
            Ok(TaskTokens { prompt, whole, most })
        };
        tasks.iter().map(encode).collect()
    }

    /// Positions that the task may take.
    fn context(&self) -> usize {
        self.prompt.len() + self.most
    }
}

/// The most positions that a text of this model may have.
///
/// # Errors
/// If the model cannot be opened.
pub(super) fn model_context(model: &Path) -> Result<usize> {
    Ok(GraphOptions::default().open_unread(model)?.0.context())
}

impl TaskRun {
    /// Gives all tasks to an engine; `so_far` gets each answer when it is known, with the place of its task.
    ///
    /// # Errors
    /// As [`ServeOptions::load`]; if a request fails, and when someone asks to stop.
    pub(super) fn solve(
        &self,
        (tasks, tokens): (&[Task], &[TaskTokens]),
        progress: &dyn Progress,
        stop: &Stop,
        so_far: &mut dyn FnMut(usize, TaskAnswer),
    ) -> Result<Solved> {
        let context = tokens.iter().map(TaskTokens::context).max();
        let serve = ServeOptions { context, ..self.serve.clone() };
        let Serving { checkpoint, model, platform, .. } = serve.load(progress, stop)?;
        let LoadedModel::Generator { runner, draft, .. } = model else {
            return Err(Error::unsupported("the model is an encoder, which generates no text"));
        };
        let tokenizer = Tokenizer::open(checkpoint.dir())?;
        let ngram = self.ngram.map(|tokens| NgramOptions { tokens, ..NgramOptions::default() });
        let options = EngineOptions { queue: tasks.len(), ngram, ..EngineOptions::default() };
        let engine = Engine::start_with_draft(runner, draft, options)?;
        progress.stage("solve", tasks.len() as u64);
        let began = Instant::now();
        let (sender, events) = channel();
        let requests =
            tokens.iter().enumerate().map(|(at, tokens)| request(at, tokens, checkpoint.eos(), &sender));
        let handles = engine.submit_all(requests.collect())?;
        drop(sender);
        let mut open: Vec<OpenTask> = handles.into_iter().map(OpenTask::new).collect();
        loop {
            stop.check()?;
            let (at, event) = match events.recv_timeout(LOOK) {
                Ok(TaskEvent { at, event }) => (at, event),
                Err(RecvTimeoutError::Timeout) => continue,
                // Every request has ended.
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let Some((task, open)) = tasks.get(at).zip(open.get_mut(at)) else { continue };
            let answer = match event {
                RequestEvent::Token(token) if !checkpoint.eos().contains(&token.id) => {
                    open.push(token.id, &tokenizer)?
                }
                RequestEvent::Finished(..) => open.end(),
                RequestEvent::Failed(error) => return Err(error),
                _ => None,
            };
            if let Some(answer) = answer {
                progress.advance(1);
                so_far(at, task.judge(&answer));
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        // Its thread counts what the last step gave after it has told of it.
        engine.shut_down(Duration::ZERO);
        let stats = engine.stats();
        let (compared_tokens, accepted_tokens) = (stats.compared_tokens, stats.accepted_tokens);
        Ok(Solved { platform, compared_tokens, accepted_tokens, seconds })
    }
}

impl Task {
    fn judge(&self, answer: &str) -> TaskAnswer {
        let answer = answer.trim();
        TaskAnswer {
            id: self.id.clone(),
            kind: self.kind.clone(),
            expected: self.answer.clone(),
            solved: answer == self.answer,
            answer: answer.to_string(),
        }
    }
}

/// An event of the task at a place.
struct TaskEvent {
    at: usize,
    event: RequestEvent,
}

/// Takes the most likely token each time.
fn request(at: usize, tokens: &TaskTokens, eos: &[u32], sender: &Sender<TaskEvent>) -> Request {
    let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
    let options = RequestOptions {
        max_tokens: tokens.most,
        sampling,
        stop_ids: eos.to_vec(),
        ..RequestOptions::default()
    };
    let sender = sender.clone();
    let events = move |event| match sender.send(TaskEvent { at, event }) {
        Ok(()) => ControlFlow::Continue(()),
        // Nobody waits for answers.
        Err(_) => ControlFlow::Break(()),
    };
    Request {
        prompt: tokens.prompt.clone(),
        images: Vec::new(),
        options,
        mask: None,
        events: Box::new(events),
    }
}

/// What has come of an answer.
struct OpenTask {
    ids: Vec<u32>,
    text: String,
    /// Dropped when the line has ended, which cancels the request; `None` from then on.
    handle: Option<RequestHandle>,
}

impl OpenTask {
    fn new(handle: RequestHandle) -> OpenTask {
        OpenTask { ids: Vec::new(), text: String::new(), handle: Some(handle) }
    }

    /// Takes a token; gives the answer if its line ends there.
    fn push(&mut self, id: u32, tokenizer: &Tokenizer) -> Result<Option<String>> {
        if self.handle.is_none() {
            return Ok(None);
        }
        self.ids.push(id);
        self.text = tokenizer.decode(&self.ids)?;
        let Some(end) = self.text.find('\n') else { return Ok(None) };
        self.text.truncate(end);
        Ok(self.end())
    }

    /// The answer, unless it was given before.
    fn end(&mut self) -> Option<String> {
        self.handle.take().map(|_| std::mem::take(&mut self.text))
    }
}
