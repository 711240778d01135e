//! Text generation: tokenizer, chat templates, sampling and the loop that runs a model token by token.
#![warn(missing_docs)]
