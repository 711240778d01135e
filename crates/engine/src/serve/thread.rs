//! The engine's thread: takes requests, runs steps, chooses tokens and tells them.

use super::active::Active;
use super::batch::{BatchLimits, BatchRunner, StepLogits, WantedLogits};
use super::choose::{Chosen, SequenceLogits};
use super::draft::guess_from_text;
use super::draft_model::{DraftWish, ModelDrafter};
use super::images::ImageStore;
use super::inbox::{Arrival, Shared, Taken, closed_error};
use super::options::{EngineOptions, EngineStats};
use super::recovery::Recovery;
use super::scheduler::{NewSequence, PlannedStep, Scheduler, SchedulerOptions, SequenceId};
use crate::generate::Finish;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tapml_constraint::panics;
use tapml_graph::{Context, Error, Result};

/// Bytes of logits from which on it pays to look at them on several threads.
const MANY_LOGITS: usize = 1 << 18;

/// How long an engine without requests waits for one; it looks around in between.
const IDLE_WAIT: Duration = Duration::from_secs(3600);
/// Likewise while no step can run. Then it tries to make the model usable again.
const FAULT_WAIT: Duration = Duration::from_secs(2);

/// See the module.
pub struct EngineThread {
    runner: Box<dyn BatchRunner>,
    limits: BatchLimits,
    options: EngineOptions,
    shared: Arc<Shared>,
    scheduler: Scheduler,
    recovery: Recovery,
    drafter: Option<ModelDrafter>,
    active: BTreeMap<SequenceId, Active>,
    images: ImageStore,
    stats: EngineStats,
    /// Whether the runner must be reset before its next step.
    broken: bool,
    /// Whether its last reset failed.
    faulty: bool,
}

/// Whether a request goes on.
#[derive(Debug)]
enum Continuation {
    /// It does.
    GoesOn,
    /// It ends.
    Ends(Finish),
    /// It fails.
    Fails(Error),
    /// Nobody listens any more.
    Left,
}

impl EngineThread {
    pub fn new(
        runner: Box<dyn BatchRunner>,
        drafter: Option<ModelDrafter>,
        limits: BatchLimits,
        options: EngineOptions,
        shared: Arc<Shared>,
    ) -> EngineThread {
        let prompt_rows = options.prompt_rows.unwrap_or(limits.rows);
        let scheduler_options = SchedulerOptions { prompt_rows, prefix_cache: options.prefix_cache };
        EngineThread {
            runner,
            limits,
            options,
            shared,
            scheduler: Scheduler::new(limits, scheduler_options),
            recovery: Recovery::default(),
            drafter,
            active: BTreeMap::new(),
            images: ImageStore::default(),
            stats: EngineStats { pages: limits.pages, ..EngineStats::default() },
            broken: false,
            faulty: false,
        }
    }

    /// Works until it is shut down. A panic fails all requests.
    pub fn run(mut self) {
        let ended = panics::catch(|| self.work());
        let error = if ended.is_some() { closed_error() } else { Error::bug("the engine's thread panicked") };
        // Closed before requests are failed, so that none comes in behind them and waits for ever.
        let late = self.shared.close();
        self.fail_all(&error);
        self.stats.failed += late.len() as u64;
        late.into_iter().for_each(|arrival| Active::new(arrival, &[]).fail(error.clone()));
        self.publish();
    }

    fn work(&mut self) {
        loop {
            let idle = if self.faulty { FAULT_WAIT } else { IDLE_WAIT };
            // Requests under way must not wait for further ones: then this only looks into the inbox.
            let wait = if self.active.is_empty() { idle } else { Duration::ZERO };
            let Taken { arrivals, cancelled, deadline } =
                self.shared.take(wait, self.scheduler.waiting_count());
            arrivals.into_iter().for_each(|arrival| self.enter(arrival));
            cancelled.into_iter().for_each(|id| self.end(id, Continuation::Ends(Finish::Cancelled)));
            // Whoever shuts it down lets requests end until then.
            if deadline.is_some_and(|deadline| self.active.is_empty() || deadline <= Instant::now()) {
                return;
            }
            if !self.active.is_empty() {
                self.step();
            } else if self.faulty {
                // Whoever watches over servers sends no request to one that cannot run, and would never see it well again.
                self.broken = self.reset().is_err();
            }
            self.shared.set_waiting(self.scheduler.waiting_count());
            self.publish();
        }
    }

    fn enter(&mut self, mut arrival: Arrival) {
        let mut images = std::mem::take(&mut arrival.request.images);
        self.images.share(&mut images);
        let options = &arrival.request.options;
        let new = NewSequence {
            prompt_logits: options.prompt_logprobs.is_some() && arrival.request.prompt.len() > 1,
            last_logits: options.max_tokens > 0,
            salt: options.cache_salt.clone().unwrap_or_default(),
            prompt: std::mem::take(&mut arrival.request.prompt),
            images,
        };
        let id = arrival.id;
        let active = Active::new(arrival, &new.prompt);
        self.scheduler.submit(id, new);
        self.active.insert(id, active);
    }

    /// Computes one step and tells what came of it.
    fn step(&mut self) {
        if self.broken {
            match self.reset() {
                Ok(()) => self.broken = false,
                Err(error) => return self.fail_all(&error),
            }
        }
        let began = Instant::now();
        self.draft();
        let mut step = self.scheduler.plan(self.recovery.suspect());
        // A scheduler that plans nothing would keep this thread in a loop without end.
        if step.ids.is_empty() {
            return self.fail_all(&Error::bug("the scheduler has requests but nothing to do"));
        }
        for (id, rows) in step.ids.iter().zip(&mut step.batch.sequences) {
            let Some(active) = self.active.get_mut(id) else { continue };
            rows.detail = active.chooser.logit_detail();
            if active.begin_step(began) {
                active.cached_tokens = self.scheduler.cached_tokens(*id);
                self.stats.prompt_tokens += active.chooser.prompt_tokens as u64;
            }
        }
        self.shared.set_step_began(Some(began));
        let logits = self.compute(&step);
        self.shared.set_step_began(None);
        match logits {
            Ok(logits) => {
                self.recovery.note_success(&step);
                self.scheduler.complete(&step);
                let unread = self.take_logits(&step, logits);
                self.stats.steps += 1;
                self.stats.rows += step.batch.rows() as u64;
                self.stats.step_time += began.elapsed();
                // Who chose goes on behind the new tokens, the others choose again.
                unread.into_iter().for_each(|error| self.recover(&step, &error));
            }
            Err(error) => self.recover(&step, &error),
        }
    }

    /// Runs the model, and beside it works out which tokens the masks allow.
    fn compute(&mut self, step: &PlannedStep) -> Result<Vec<StepLogits>> {
        let EngineThread { runner, active, limits, .. } = self;
        let chosen = step.ids.iter().zip(&step.batch.sequences);
        let chosen: HashMap<SequenceId, WantedLogits> = chosen.map(|(id, rows)| (*id, rows.wanted)).collect();
        // A mask is work for nothing where the step ends within a prompt.
        let masked = active.iter_mut().filter(|(id, active)| {
            active.chooser.is_masked()
                && chosen.get(id).is_some_and(|wanted| *wanted != WantedLogits::Nothing)
        });
        let masked: Vec<&mut Active> = masked.map(|(_, active)| active).collect();
        let mut run = || panics::catch(|| runner.step(&step.batch));
        let logits = if masked.is_empty() {
            run()
        } else {
            thread::scope(|scope| {
                let vocab = limits.vocab;
                let fill = move || masked.into_par_iter().for_each(|active| active.chooser.fill_mask(vocab));
                // Without a thread they are filled when they are needed.
                let _ = thread::Builder::new().spawn_scoped(scope, fill);
                run()
            })
        };
        let logits = logits.unwrap_or_else(|| Err(Error::bug("the runner panicked")))?;
        let sequences = &step.batch.sequences;
        let mut pairs = logits.iter().zip(sequences);
        if logits.len() != sequences.len()
            || !pairs.all(|(logits, rows)| logits.has_rows(rows.wanted_rows(), limits.vocab))
        {
            return Err(Error::bug("the runner gave another number of logits than it was asked for"));
        }
        Ok(logits)
    }

    /// Chooses tokens for each sequence that is computed to its end, and reports them. Gives the error if logits that some need could
    /// not be read.
    fn take_logits(&mut self, step: &PlannedStep, logits: Vec<StepLogits>) -> Option<Error> {
        let EngineThread { scheduler, active, limits, runner, .. } = self;
        let given: usize = logits.iter().map(StepLogits::bytes).sum();
        let many = given >= MANY_LOGITS;
        let mut rows: HashMap<SequenceId, SequenceLogits> = HashMap::new();
        let mut drafted = 0;
        let sequences = step.ids.iter().zip(&step.batch.sequences).enumerate();
        for ((index, (id, sequence)), logits) in sequences.zip(logits) {
            let text = scheduler.ids(*id);
            // What a step has behind the text is a draft.
            let computed = text.len().saturating_sub(sequence.start).min(sequence.ids.len());
            let complete = sequence.start + computed == text.len();
            let draft = &sequence.ids[computed..];
            drafted += draft.len();
            let start = sequence.start;
            rows.insert(*id, SequenceLogits { index, logits, start, text, draft, complete });
        }
        // Few rows are read, one after the other.
        let (runner, behind) = (Mutex::new(runner), AtomicU64::new(0));
        let read = |index: usize, row: usize, columns: Range<usize>| {
            let mut runner = runner.lock().unwrap_or_else(PoisonError::into_inner);
            behind.fetch_add((columns.len() * size_of::<f32>()) as u64, Ordering::Relaxed);
            let logits = panics::catch(|| runner.read_logits(index, row, columns));
            logits.unwrap_or_else(|| Err(Error::bug("the runner panicked")))
        };
        // In the order of ids, so that the order in which tokens are told does not depend on threads.
        let work = active.iter_mut().filter_map(|(id, active)| Some((*id, active, rows.remove(id)?)));
        let work: Vec<(SequenceId, &mut Active, SequenceLogits)> = work.collect();
        let choose = |(id, active, rows): (SequenceId, &mut Active, SequenceLogits)| {
            let index = rows.index;
            (id, active.chooser.choose(rows, limits, &|row, columns| read(index, row, columns)))
        };
        // A row that a mask makes necessary is read and gone through when the token is chosen.
        let masked = work.iter().filter(|(_, active, _)| active.chooser.is_masked()).count();
        let chosen: Vec<(SequenceId, Chosen)> = if (many || masked > 1) && work.len() > 1 {
            work.into_par_iter().map(choose).collect()
        } else {
            work.into_iter().map(choose).collect()
        };
        self.stats.logit_bytes += given as u64 + behind.into_inner();
        self.stats.draft_tokens += drafted as u64;
        let now = Instant::now();
        let mut unread = None;
        for (id, mut chosen) in chosen {
            unread = unread.or(chosen.unread.take());
            let next = self.take_tokens(id, chosen, now);
            self.end(id, next);
        }
        unread
    }

    /// Reports the tokens of one request; says whether it goes on.
    fn take_tokens(&mut self, id: SequenceId, chosen: Chosen, now: Instant) -> Continuation {
        let Some(active) = self.active.get_mut(&id) else { return Continuation::GoesOn };
        self.stats.generated_tokens += chosen.tokens.len() as u64;
        // The last token is the model's own choice, those before it were drafted.
        self.stats.compared_tokens += chosen.compared as u64;
        self.stats.accepted_tokens += chosen.tokens.len().saturating_sub(1) as u64;
        chosen.tokens.iter().for_each(|token| self.scheduler.push(id, token.id));
        if !active.report_tokens(chosen.tokens, now) {
            return Continuation::Left;
        }
        match chosen.finish {
            Ok(None) => Continuation::GoesOn,
            Ok(Some(finish)) => Continuation::Ends(finish),
            Err(error) => Continuation::Fails(error),
        }
    }

    /// Guesses tokens behind the texts that run: from the texts, and where nothing is found, by the small model.
    fn draft(&mut self) {
        let EngineThread { scheduler, active, options, drafter, .. } = self;
        // A draft takes rows of a step, which pays off only while few requests want them.
        let running = scheduler.running_count();
        let ngram = options.ngram.as_ref().filter(|ngram| running <= ngram.requests);
        let drafter = drafter.as_mut().filter(|drafter| running <= drafter.requests);
        if ngram.is_none() && drafter.is_none() {
            return;
        }
        let mut guesses: BTreeMap<SequenceId, Vec<u32>> = BTreeMap::new();
        let mut wishes = Vec::new();
        for (id, active) in active.iter_mut().filter(|(_, active)| active.has_begun()) {
            let (text, most) = (scheduler.ids(*id), active.chooser.draft_length());
            let guess = ngram.map(|ngram| guess_from_text(text, most.min(ngram.tokens)));
            match guess.filter(|guess| !guess.is_empty()) {
                Some(guess) => drop(guesses.insert(*id, guess)),
                None if most > 0 => wishes.push(DraftWish { id: *id, text, most }),
                None => {}
            }
        }
        if let Some(drafter) = drafter {
            guesses.extend(drafter.guess(&wishes));
        }
        guesses.into_iter().for_each(|(id, guess)| scheduler.set_draft(id, guess));
    }

    /// The step failed: the pages are lost. Fails who is to blame; all others are computed anew.
    fn recover(&mut self, step: &PlannedStep, error: &Error) {
        self.stats.failed_steps += 1;
        self.scheduler.lose_pages();
        self.broken = true;
        let blamed = self.recovery.note_failure(step);
        for id in &step.ids {
            let Some(active) = self.active.get_mut(id) else { continue };
            active.failures += 1;
            if blamed == Some(*id) || active.failures > self.options.retries {
                self.end(*id, Continuation::Fails(error.clone()));
            }
        }
    }

    fn reset(&mut self) -> Result<()> {
        let reset = panics::catch(|| self.runner.reset());
        let reset = reset
            .unwrap_or_else(|| Err(Error::bug("the runner panicked")))
            .context(|| "could not make the model usable again after a failed step".into());
        self.faulty = reset.is_err();
        self.shared.set_fault(reset.as_ref().err().cloned());
        reset
    }

    /// Ends a request, unless it goes on.
    fn end(&mut self, id: SequenceId, outcome: Continuation) {
        if matches!(outcome, Continuation::GoesOn) {
            return;
        }
        let Some(active) = self.active.remove(&id) else { return };
        // The pages come back before the end is told.
        self.scheduler.remove(id);
        self.recovery.remove(id);
        self.drafter.iter_mut().for_each(|drafter| drafter.remove(id));
        match &outcome {
            Continuation::Ends(Finish::Cancelled) | Continuation::Left => self.stats.cancelled += 1,
            Continuation::Fails(_) => self.stats.failed += 1,
            _ => self.stats.finished += 1,
        }
        self.publish();
        match outcome {
            Continuation::Ends(finish) => active.finish(finish, Instant::now()),
            Continuation::Fails(error) => active.fail(error),
            Continuation::GoesOn | Continuation::Left => {}
        }
    }

    fn fail_all(&mut self, error: &Error) {
        let ids: Vec<SequenceId> = self.active.keys().copied().collect();
        ids.into_iter().for_each(|id| self.end(id, Continuation::Fails(error.clone())));
    }

    /// Makes the numbers readable for others.
    fn publish(&mut self) {
        let counts = self.scheduler.counts();
        self.stats.running = self.scheduler.running_count();
        self.stats.waiting = self.scheduler.waiting_count();
        self.stats.pages_used = self.scheduler.pages_used();
        self.stats.prefix_queries = counts.prefix_queries;
        self.stats.prefix_hits = counts.prefix_hits;
        self.stats.preemptions = counts.preemptions;
        self.stats.device_reopened = self.runner.reopened_count();
        self.shared.set_stats(self.stats);
    }
}
