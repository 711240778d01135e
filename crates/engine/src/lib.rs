//! Text generation: tokenizer, chat templates, sampling and the loop that runs a model token by token. Encoders give vectors.
//!
//! [`Generator`] turns token ids into token ids on anything that implements [`Runner`], such as a session of
//! `tapml-exec`; [`generate_text`] puts a [`Tokenizer`] around it.
//!
//! Everything that comes with a checkpoint is hostile here: tokenizers, templates, images and sounds are
//! bounded in size, work and depth before a library sees them. Nothing of this crate knows a device.
#![warn(missing_docs)]

mod chat;
mod embedding;
mod generate;
mod image;
mod prompts;
mod reopen;
mod runner;
mod sampler;
mod serve;
mod sound;
mod special;
mod stop;
mod stream;
mod text;
mod tokenizer;
mod vision;
mod vocabulary;

pub use self::image::{Filter, ImageProcessor, Pixels, Rgb};
pub use chat::{Chat, ChatTemplate, Content, Message, MessagePart};
pub use embedding::{
    EmbeddingModel, EmbeddingOptions, EmbeddingStats, EncoderLimits, PlatformEncoder, PoolingMode,
    TextEncoder,
};
pub use generate::{Finish, GenerateOptions, Generation, Generator};
pub use prompts::{bundled_image, bundled_prompts, bundled_text};
pub use runner::Runner;
pub use sampler::{Sampler, Sampling};
pub use serve::{
    Batch, BatchLimits, BatchRunner, Candidate, DraftModel, Engine, EngineOptions, EngineStats, ImageLimits,
    LogitDetail, NO_SLOT, NgramOptions, PagedRunner, PartSums, PlacedImage, PromptToken, ReplaceGuess,
    Request, RequestEvent, RequestHandle, RequestOptions, SampledToken, SequenceRows, SharedImage,
    StepLogits, SubmitError, TokenMask, TopRows, Usage, WantedLogits,
};
pub use sound::Sound;
pub use special::SpecialTokens;
pub use stop::StopTexts;
pub use stream::TextStream;
pub use text::{GeneratedText, generate_text};
pub use tokenizer::Tokenizer;
pub use vision::{Vision, VisionError, user_message};
