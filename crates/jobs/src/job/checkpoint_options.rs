//! Options that only a checkpoint takes. A suite and an ONNX model have inputs and a graph of their own, so that the options would
//! do nothing there.

use crate::model::GraphOptions;
use crate::prompts::Prompts;
use std::path::Path;
use tapml_graph::{Error, Result};

/// The options of a job that say what a checkpoint reads, for how many steps, and as which graph.
pub(super) struct CheckpointOptions<'a> {
    /// What it reads.
    pub prompts: &'a Prompts,
    /// Steps after each prompt, if they were given.
    pub steps: Option<u32>,
    /// How the checkpoint becomes a graph.
    pub graph: &'a GraphOptions,
}

impl CheckpointOptions<'_> {
    /// Fails if any was given beside a suite in the place of a model.
    pub fn expect_none_for_suite(&self, suite: &Path) -> Result<()> {
        self.expect_no_runs(suite)?;
        let hint = "leave it away: what was recorded is moved as it is";
        let what = format!("the suite {}, which has a graph of its own", suite.display());
        refuse(self.graph_option(), &what, hint)
    }

    /// Fails if prompts or steps were given beside a suite, which holds the runs that were recorded.
    pub fn expect_no_runs(&self, suite: &Path) -> Result<()> {
        let prompts = (!matches!(self.prompts, Prompts::Bundled)).then_some("prompts");
        let given = prompts.or(self.steps.map(|_| "a number of decode steps"));
        let hint = "leave them away; `tapml carve` records other runs of a checkpoint";
        refuse(given, &format!("the suite {}, which holds its own runs", suite.display()), hint)
    }

    /// Fails if any was given for an ONNX model.
    pub fn expect_none_for_onnx(&self, model: &Path) -> Result<()> {
        self.prompts.expect_none()?;
        let steps = self.steps.map(|_| "a number of decode steps");
        let hint = "leave it away: each set of arrays is one run of the graph in the file";
        refuse(steps.or(self.graph_option()), &format!("the ONNX model {}", model.display()), hint)
    }

    /// The first option of the graph that is not as it is by default.
    fn graph_option(&self) -> Option<&'static str> {
        let (own, default) = (self.graph, GraphOptions::default());
        let options = [
            (own.activation != default.activation, "a dtype of activations"),
            (own.fuse != default.fuse, "the wish not to fuse operators"),
            (own.quantize.is_some(), "a scheme to quantise weights"),
            (own.paged.is_some(), "rows of a page"),
        ];
        options.into_iter().find(|(given, _)| *given).map(|(_, name)| name)
    }
}

/// The error of an option that was given and would do nothing.
fn refuse(given: Option<&str>, beside: &str, hint: &str) -> Result<()> {
    match given {
        None => Ok(()),
        Some(what) => Err(Error::invalid(format!("{what} beside {beside}")).with_hint(hint)),
    }
}
