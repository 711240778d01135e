//! A runner that several engines use one after the other, and that notes when its steps ran and what they held.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tapml_engine::{Batch, BatchLimits, BatchRunner, ImageLimits, StepLogits};
use tapml_graph::Result;

/// One step.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedStep {
    /// When it began.
    pub began: Instant,
    /// How long it took, what it gave read back included.
    pub seconds: f64,
    /// Its texts.
    pub texts: usize,
    /// Its rows.
    pub rows: usize,
    /// Whether all of its rows stand behind the prompts.
    pub generates: bool,
}

/// See the module. Clones share the runner and the notes.
#[derive(Clone)]
pub(super) struct TimedRunner {
    runner: Arc<Mutex<Box<dyn BatchRunner>>>,
    steps: Arc<Mutex<Vec<TimedStep>>>,
}

impl TimedRunner {
    pub(super) fn new(runner: Box<dyn BatchRunner>) -> TimedRunner {
        TimedRunner { runner: Arc::new(Mutex::new(runner)), steps: Arc::default() }
    }

    /// The steps since this was asked before.
    pub(super) fn take_steps(&self) -> Vec<TimedStep> {
        std::mem::take(&mut *self.steps.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn runner(&self) -> MutexGuard<'_, Box<dyn BatchRunner>> {
        self.runner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchRunner for TimedRunner {
    fn limits(&self) -> BatchLimits {
        self.runner().limits()
    }

    fn step(&mut self, batch: &Batch) -> Result<Vec<StepLogits>> {
        let began = Instant::now();
        let logits = self.runner().step(batch)?;
        let seconds = began.elapsed().as_secs_f64();
        let generates = batch.sequences.iter().all(|rows| rows.start >= rows.prompt);
        let (texts, rows) = (batch.sequences.len(), batch.rows());
        let step = TimedStep { began, seconds, texts, rows, generates };
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).push(step);
        Ok(logits)
    }

    fn read_logits(&mut self, sequence: usize, row: usize, columns: Range<usize>) -> Result<Vec<f32>> {
        self.runner().read_logits(sequence, row, columns)
    }

    fn image_limits(&self) -> Option<ImageLimits> {
        self.runner().image_limits()
    }

    fn reset(&mut self) -> Result<()> {
        self.runner().reset()
    }

    fn reopened_count(&self) -> u64 {
        self.runner().reopened_count()
    }
}
