//! Times of answers as llama-server tells them.

use serde_json::{Value, json};
use std::time::Duration;
use tapml_engine::Usage;

/// Numbers and times of a request. Tokens that were in the cache are counted apart. Milliseconds of new tokens begin with the
/// first of them, so that rates are those of the steps behind it.
pub fn timings(usage: &Usage) -> Value {
    let Usage { prompt_tokens, cached_tokens, new_tokens, prefill, decode, .. } = *usage;
    let computed = prompt_tokens.saturating_sub(cached_tokens);
    let [prompt, predicted] = [(computed, prefill), (new_tokens.saturating_sub(1), decode)].map(rates);
    json!({
        "cache_n": cached_tokens,
        "prompt_n": computed, "prompt_ms": milliseconds(prefill),
        "prompt_per_token_ms": prompt.0, "prompt_per_second": prompt.1,
        "predicted_n": new_tokens, "predicted_ms": milliseconds(decode),
        "predicted_per_token_ms": predicted.0, "predicted_per_second": predicted.1,
    })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Milliseconds a token, and tokens a second; zeros if there are none.
fn rates((tokens, time): (usize, Duration)) -> (f64, f64) {
    if tokens == 0 || time.is_zero() {
        return (0.0, 0.0);
    }
    (milliseconds(time) / tokens as f64, tokens as f64 / time.as_secs_f64())
}
