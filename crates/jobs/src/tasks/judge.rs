//! Ways to solve tasks side by side, each judged by its distance from the median.
//!
//! Feng et al. accept a target whose model solves at most 3 of 164 tasks more or less than the median of all. Here a way that
//! computes with the checkpoint's own weights may differ by 1 only.

use super::file::Task;
use super::solve::{Solved, TaskAnswer, TaskRun, TaskTokens, model_context};
use crate::eval::{Comparison, Side, compare};
use crate::job::open_platform;
use crate::model::GraphOptions;
use serde::Serialize;
use std::path::PathBuf;
use tapml_engine::Tokenizer;
use tapml_exec::{CpuPlatform, PlatformInfo};
use tapml_graph::{Context, DType, Model, Result};
use tapml_import::LogitRows;
use tapml_import::quantize::Scheme;
use tapml_migrate::{Progress, Stop};

/// Tasks by which a way may lie from the median: the paper's, for weights that are quantised.
const MOST_DISTANCE: f64 = 3.0;
/// The same where the weights are the checkpoint's.
const MOST_DISTANCE_EXACT: f64 = 1.0;

/// How many tasks of a kind are solved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KindCount {
    /// As the file names it; absent for tasks without one.
    pub kind: Option<String>,
    /// Tasks of this kind that were answered.
    pub tasks: usize,
    /// Of these, tasks solved.
    pub solved: usize,
}

/// What one way to solve the tasks gave.
#[derive(Clone, Debug, Serialize)]
pub struct TaskRow {
    /// As it was named.
    pub target: String,
    /// What it is; absent until it was opened.
    pub device: Option<PlatformInfo>,
    /// Dtype of activations.
    pub activation: DType,
    /// How the weights are quantised, if they are.
    pub quantize: Option<Scheme>,
    /// The small model that guesses, if one does.
    pub draft: Option<PathBuf>,
    /// Most tokens guessed from the text at once, if they are.
    pub ngram: Option<usize>,
    /// Tasks that were answered.
    pub tasks: usize,
    /// Of these, tasks solved.
    pub solved: usize,
    /// Tasks solved more or fewer than the median of all ways; absent if there is one way only, or it was stopped.
    pub distance: Option<f64>,
    /// The largest distance with which it passes.
    pub limit: f64,
    /// By kind, in the order of the file.
    pub kinds: Vec<KindCount>,
    /// Prompts with their right answers, compared with the source; absent until that was done.
    pub comparison: Option<Comparison>,
    /// Guesses that were compared with the model's own choice.
    pub compared_tokens: u64,
    /// Of these, guesses that were right.
    pub accepted_tokens: u64,
    /// From the first prompt to the last answer.
    pub seconds: f64,
    /// In the order of the file.
    pub answers: Vec<TaskAnswer>,
}

impl TaskRow {
    /// Whether it lies near enough to the median; a way that is alone does.
    pub fn passes(&self) -> bool {
        self.distance.is_none_or(|distance| distance <= self.limit)
    }

    fn new(run: &TaskRun, tasks: &[Task]) -> TaskRow {
        let graph = &run.serve.graph;
        let mut kinds: Vec<KindCount> = Vec::new();
        for task in tasks {
            if !kinds.iter().any(|count| count.kind == task.kind) {
                kinds.push(KindCount { kind: task.kind.clone(), tasks: 0, solved: 0 });
            }
        }
        TaskRow {
            target: run.serve.target.clone(),
            device: None,
            activation: graph.activation,
            quantize: graph.quantize,
            draft: run.serve.draft.clone(),
            ngram: run.ngram,
            tasks: 0,
            solved: 0,
            distance: None,
            limit: if graph.quantize.is_some() { MOST_DISTANCE } else { MOST_DISTANCE_EXACT },
            kinds,
            comparison: None,
            compared_tokens: 0,
            accepted_tokens: 0,
            seconds: 0.0,
            answers: Vec::new(),
        }
    }

    /// Takes an answer, which comes to stand at this place among those that are known.
    fn insert(&mut self, place: usize, answer: TaskAnswer) {
        let solved = usize::from(answer.solved);
        if let Some(count) = self.kinds.iter_mut().find(|count| count.kind == answer.kind) {
            (count.tasks, count.solved) = (count.tasks + 1, count.solved + solved);
        }
        (self.tasks, self.solved) = (self.tasks + 1, self.solved + solved);
        self.answers.insert(place, answer);
    }
}

impl TaskRun {
    /// Solves the tasks, then compares the model with its `source` on prompts with their right answers, token by token. `so_far`
    /// gets what is known after each answer, and at the end.
    ///
    /// # Errors
    /// If a model cannot be opened or run, a task is longer than its context, or someone asks to stop.
    pub fn run(
        &self,
        tasks: &[Task],
        source: &Model,
        progress: &dyn Progress,
        stop: &Stop,
        so_far: &mut dyn FnMut(&TaskRow),
    ) -> Result<TaskRow> {
        let model = &self.serve.model;
        let tokenizer = Tokenizer::open(model)?;
        let tokens = TaskTokens::encode(tasks, &tokenizer, model_context(model)?)?;
        let mut row = TaskRow::new(self, tasks);
        // Of the answers so far, the places of their tasks.
        let mut places: Vec<usize> = Vec::new();
        let Solved { platform, compared_tokens, accepted_tokens, seconds } =
            self.solve((tasks, &tokens), progress, stop, &mut |at, answer| {
                let place = places.partition_point(|&other| other < at);
                places.insert(place, at);
                row.insert(place, answer);
                so_far(&row);
            })?;
        row = TaskRow { device: Some(platform), compared_tokens, accepted_tokens, seconds, ..row };
        so_far(&row);
        row.comparison = Some(self.compare(&tokens, source, progress, stop)?);
        so_far(&row);
        Ok(row)
    }

    /// The model, without guesses, compared with its source.
    fn compare(
        &self,
        tokens: &[TaskTokens],
        source: &Model,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<Comparison> {
        let (graph, words) = self.serve.graph.for_target(&self.serve.target)?;
        let graph = GraphOptions { paged: None, ..graph };
        let (_, model) = graph.open(&self.serve.model, LogitRows::All)?;
        let windows: Vec<&[u32]> = tokens.iter().map(|tokens| tokens.whole.as_slice()).collect();
        let mut platform = open_platform(&words, &self.serve.kernels)?;
        let source = Side { model: source, platform: &mut CpuPlatform::new() };
        let tested = Side { model: &model, platform: platform.as_mut() };
        progress.stage("compare", windows.len() as u64);
        let compared = compare(source, tested, &windows, stop, &mut |_| progress.advance(1));
        compared.context(|| "prompts with their answers".to_string())
    }
}

/// Gives each row its distance from the median of all, which is returned; `None` for fewer than two rows.
pub fn judge_rows(rows: &mut [TaskRow]) -> Option<f64> {
    let mut counts: Vec<usize> = rows.iter().map(|row| row.solved).collect();
    counts.sort_unstable();
    let middle = counts.len() / 2;
    let median = match counts.len() {
        0 | 1 => return None,
        odd if odd % 2 == 1 => counts[middle] as f64,
        _ => (counts[middle - 1] + counts[middle]) as f64 / 2.0,
    };
    for row in rows {
        row.distance = Some((row.solved as f64 - median).abs());
    }
    Some(median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(solved: usize, quantize: Option<&str>) -> TaskRow {
        let quantize = quantize.map(|scheme| scheme.parse().unwrap());
        let graph = GraphOptions { quantize, ..GraphOptions::default() };
        let serve = crate::serve::ServeOptions { graph, ..Default::default() };
        TaskRow { solved, ..TaskRow::new(&TaskRun { serve, ngram: None }, &[]) }
    }

    #[test]
    fn rows_are_judged_by_their_distance_from_the_median() {
        let mut rows =
            [row(90, None), row(91, None), row(93, Some("q4")), row(94, None), row(87, Some("q8"))];
        assert_eq!(judge_rows(&mut rows), Some(91.0));
        assert_eq!(rows.each_ref().map(TaskRow::passes), [true, true, true, false, false]);
        let mut two = [row(90, None), row(93, Some("q4"))];
        assert_eq!(judge_rows(&mut two), Some(91.5));
        assert_eq!(
            two.each_ref().map(|row| (row.distance, row.passes())),
            [(Some(1.5), false), (Some(1.5), true)]
        );
        assert_eq!(judge_rows(&mut [row(90, None)]), None);
    }

    #[test]
    fn answers_are_counted_by_kind() {
        let text = String::new;
        let tasks = [Some("a"), None, Some("a")].map(|kind| Task {
            id: text(),
            kind: kind.map(str::to_string),
            prompt: text(),
            answer: text(),
            place: text(),
        });
        let answer = |task: &Task, solved| TaskAnswer {
            id: task.id.clone(),
            kind: task.kind.clone(),
            expected: text(),
            answer: text(),
            solved,
        };
        let run = TaskRun { serve: Default::default(), ngram: None };
        let mut row = TaskRow::new(&run, &tasks);
        row.insert(0, answer(&tasks[2], false));
        row.insert(0, answer(&tasks[1], false));
        row.insert(0, answer(&tasks[0], true));
        assert_eq!((row.tasks, row.solved, row.answers[0].solved), (3, 1, true));
        let kinds = row.kinds.iter().map(|count| (count.kind.as_deref(), count.tasks, count.solved));
        assert_eq!(kinds.collect::<Vec<_>>(), [(Some("a"), 2, 1), (None, 1, 0)]);
    }
}
