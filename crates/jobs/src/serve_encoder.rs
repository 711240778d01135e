//! An encoder of texts made ready to serve.

use crate::job::open_platform_for;
use crate::serve::{LoadedModel, ServeOptions, Serving};
use tapml_engine::{EmbeddingOptions, EncoderLimits, PlatformEncoder};
use tapml_graph::{Error, Model, Result};
use tapml_import::Checkpoint;
use tapml_migrate::{Progress, Stop};

impl ServeOptions {
    /// Checks the kernels of an encoder on recorded calls, and loads it.
    ///
    /// # Errors
    /// If an option asks for what an encoder cannot do, if the model takes no texts, or if a call of the check fails.
    pub(crate) fn load_encoder(
        &self,
        checkpoint: Checkpoint,
        model: Model,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<Serving> {
        for (option, given) in [("--draft", self.draft.is_some()), ("--shadow", self.shadow.is_some())] {
            if given {
                let text = format!("the model is an encoder, which {option} does not serve");
                return Err(Error::unsupported(text).with_hint(format!("leave `{option}` out")));
            }
        }
        let options = EmbeddingOptions::open(checkpoint.dir(), checkpoint.config())?;
        let most = checkpoint.context();
        let context = self.context.unwrap_or(options.max_tokens.map_or(most, |tokens| tokens.min(most)));
        if context == 0 || context > most {
            return Err(Error::invalid(format!(
                "the context must be from 1 to {most}, which the model has, found {context}"
            )));
        }
        let options = EmbeddingOptions { max_tokens: Some(context), ..options };
        EncoderLimits::from_model(&model, context)?;
        let calls = self.graph.share_out(model.clone())?;
        let mut platform = open_platform_for(&self.target, &self.kernels, model.graph())?;
        let checked = if self.check && platform.word() != "cpu" {
            let prompt = self.prompt(&checkpoint, &calls)?;
            // Other kernels serve a text of one token.
            let single = prompt.first().copied().into_iter().collect();
            let prompts = [prompt, single];
            Some(self.check_kernels((&checkpoint, &calls), &prompts, platform.as_mut(), progress, stop)?)
        } else {
            None
        };
        progress.stage("load the model", 0);
        let encoder = PlatformEncoder::new(platform.as_mut(), &model, context)?;
        let info = platform.describe();
        let (target, kernels) = (self.target.clone(), self.kernels.clone());
        let encoder = encoder.with_reopening(move || {
            log::warn!("`{target}` was lost: it is opened again, and the model loaded");
            let mut platform = open_platform_for(&target, &kernels, model.graph())?;
            PlatformEncoder::new(platform.as_mut(), &model, context)
        });
        let model = LoadedModel::Encoder { encoder: Box::new(encoder), options };
        Ok(Serving { checkpoint, model, platform: info, checked, random: self.random })
    }
}
