//! A model under test: its graph and weights, its recorded calls, and their exact results.

use std::path::Path;
use tapml_exec::CpuPlatform;
use tapml_graph::{Model, Op, Result, Symbol};
use tapml_migrate::suite::Suite;
use tapml_migrate::{CarveOptions, ModelIdentity, Oracles, Progress, PromptInput, Stop, carve};

/// A model with recorded calls. Exact results are computed once and shared by all mutants.
pub struct Fixture {
    /// The model's name in ids of mutants.
    pub name: String,
    /// The recorded calls.
    pub suite: Suite,
    /// The model.
    pub model: Model,
    /// Exact results of the suite's calls.
    pub oracles: Oracles,
    /// Whether a prompt is longer than the model's attention window, so that faults of it show.
    pub long: bool,
}

/// What is recorded of a model.
#[derive(Clone, Debug, Default)]
pub struct FixtureOptions {
    /// Token ids of the prompts.
    pub prompts: Vec<Vec<u32>>,
    /// Decode steps after each prompt.
    pub steps: u32,
}

impl Fixture {
    /// Runs the model on the CPU reference and records its calls into a new folder `out`.
    ///
    /// # Errors
    ///
    /// A model that the reference does not run, or a folder that cannot be written.
    pub fn carve(
        name: &str,
        model: &Model,
        options: &FixtureOptions,
        out: &Path,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<Fixture> {
        let identity = ModelIdentity { name: name.into(), path: name.into(), ..ModelIdentity::default() };
        let prompts = options.prompts.iter().cloned();
        let prompts: Vec<PromptInput> =
            prompts.map(|ids| PromptInput { ids, ..PromptInput::default() }).collect();
        let carving = CarveOptions {
            out,
            overwrite: true,
            steps: options.steps,
            // The model is in memory, so its weights need not be in the folder.
            self_contained: false,
            context: 0,
            decode: &|_| String::new(),
        };
        carve(&mut CpuPlatform::new(), model, identity, &prompts, &carving, progress, stop)?;
        Fixture::open(name, model, out)
    }

    /// Opens recorded calls of this model.
    ///
    /// # Errors
    ///
    /// A folder that is no suite, or one of another model.
    pub fn open(name: &str, model: &Model, suite: &Path) -> Result<Fixture> {
        let suite = Suite::open(suite)?;
        let model = suite.model(Some(model))?;
        // The most rows of one run, which is the longest prompt.
        let most = suite.frames().iter().filter_map(|f| f.symbols.get(Symbol::N)).max().unwrap_or(0);
        let long = Fixture::window(&model).is_some_and(|window| most > u64::from(window));
        Ok(Fixture { name: name.into(), suite, model, oracles: Oracles::new(Oracles::BUDGET), long })
    }

    /// The largest attention window of a model: faults of windows show only beyond it.
    pub fn window(model: &Model) -> Option<u32> {
        let windows = model.graph().nodes().iter().filter_map(|node| match &node.op {
            Op::Attention(attention) => attention.window,
            _ => None,
        });
        windows.max()
    }
}
