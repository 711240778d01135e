//! The first step of a text in which something is not as it must be, with all that explains it.

use super::runs::{self, RunStep};
use super::scan::{Anomaly, Before};
use super::traced::TracedValues;
use crate::context::DiagnosisContext;
use std::collections::HashMap;
use tapml_exec::Hybrid;
use tapml_graph::{Result, Tensor};

/// A step in which something is not as it must be.
pub(super) struct Scene {
    /// The values of the step itself.
    pub values: TracedValues,
    /// What was before the step.
    pub before: Before,
    /// The values of the step behind it, if there was one.
    pub after: Option<TracedValues>,
}

/// Looks at the values of a step, what was before it, and its results.
pub(super) type Inspect<'a> = dyn FnMut(
        &mut DiagnosisContext<'_>,
        &RunStep,
        &TracedValues,
        &Before,
        &HashMap<String, Tensor>,
    ) -> Result<Vec<Anomaly>>
    + 'a;

/// What a text shows: what is wrong in the first step where anything is, with that step; else what is before the next
/// text.
pub(super) enum Shown {
    Nothing(Before),
    Something(Vec<Anomaly>, Box<Scene>),
}

/// Runs a text from an empty state on a hybrid whose values can be seen, and inspects its steps until one shows
/// something. The step `next` behind the text is only run to see what the others left to it.
///
/// `before` is what the text before left. The hybrid is reset, so that a state that is not empty is an anomaly.
pub(super) fn first(
    run: &mut DiagnosisContext<'_>,
    whole: &mut Hybrid,
    (steps, next): (&[RunStep], Option<&RunStep>),
    before: Before,
    fill: Option<u32>,
    inspect: &mut Inspect<'_>,
) -> Result<Shown> {
    let mut before = before.text();
    whole.reset()?;
    let all: Vec<&RunStep> = steps.iter().chain(next).collect();
    for (i, step) in all.iter().enumerate().take(steps.len()) {
        let outputs = runs::feed(run, whole, step)?;
        let values = TracedValues::from_hybrid(run, whole, fill)?;
        let found = inspect(run, step, &values, &before, &outputs)?;
        if found.is_empty() {
            // The values of a step without anomalies are not kept, only what the next one needs.
            before = Before::step(run, step, &values);
            continue;
        }
        let after = match all.get(i + 1) {
            Some(next) => {
                runs::feed(run, whole, next)?;
                Some(TracedValues::from_hybrid(run, whole, fill)?)
            }
            None => None,
        };
        return Ok(Shown::Something(found, Box::new(Scene { values, before, after })));
    }
    Ok(Shown::Nothing(before))
}
