//! Activation functions as configurations name them.

use crate::config::Section;
use tapml_graph::Result;
use tapml_graph::op::{Gelu, GeluForm};

/// The form of GELU that `hidden_act` names, or `default` if the key is absent. Fails on another activation.
pub fn gelu(config: &Section, default: &'static str) -> Result<Gelu> {
    const KEY: &str = "hidden_act";
    let approximate = match config.text_or(KEY, default)? {
        "gelu" => GeluForm::None,
        "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => GeluForm::Tanh,
        other => {
            let text = format!("activation `{other}` is not supported for this architecture");
            let hint = "supported: gelu, gelu_new, gelu_fast, gelu_pytorch_tanh";
            return Err(config.unsupported(KEY, &text).with_hint(hint));
        }
    };
    Ok(Gelu { approximate })
}
