//! Tasks with one right answer each, solved by a model as a server runs it: what a target, a quantisation or guessed tokens do
//! to what a model can do.
//!
//! A task is a prompt that the model continues with its most likely tokens up to the end of a line. Ways to solve them (`TaskRun`)
//! are judged side by side, by how far each lies from the median of all.

mod file;
mod judge;
mod solve;

pub use file::{Task, read_tasks};
pub use judge::{KindCount, TaskRow, judge_rows};
pub use solve::{TaskAnswer, TaskRun};
