//! Chat templates: any text is refused, or rendered within its budget.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tapml_engine::{Chat, ChatTemplate, Message, SpecialTokens};

fuzz_target!(|source: &str| {
    let special =
        SpecialTokens { bos: Some("<s>".into()), eos: Some("</s>".into()), ..SpecialTokens::default() };
    let Ok(template) = ChatTemplate::new(source, &special) else { return };
    let messages = [
        Message::new("system", "Be brief."),
        Message::with_image("user", true, "  What is\n\"this\"? é<>&'"),
        Message::new("assistant", "<think>a</think>b"),
        Message::new("user", ""),
    ];
    let Ok(chat) = Chat::new(&messages) else { return };
    if let Err(error) = template.render(&chat) {
        assert!(!error.to_string().contains("panicked"), "{error}");
    }
});
