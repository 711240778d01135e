//! What is counted and measured, in the text format of Prometheus under the names of vLLM, so that dashboards for vLLM show it.

use crate::served::{ShadowFailures, ShadowStats};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tapml_engine::{EmbeddingStats, EngineStats, Finish, Usage};

/// Upper bounds of the buckets of times to the first token, seconds; vLLM's.
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
/// Those of times between tokens.
const NEXT_TOKEN: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
/// Those of times of whole requests and their parts.
const REQUEST: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];
/// Words of vLLM for the ends of requests.
const REASONS: [&str; 4] = ["stop", "length", "abort", "error"];

/// Times, counted in buckets.
struct Histogram {
    name: &'static str,
    help: &'static str,
    bounds: &'static [f64],
    /// One for each bound, and one for what is above all.
    counts: Vec<AtomicU64>,
    /// Sum in nanoseconds.
    nanoseconds: AtomicU64,
}

impl Histogram {
    fn new(name: &'static str, help: &'static str, bounds: &'static [f64]) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { name, help, bounds, counts, nanoseconds: AtomicU64::new(0) }
    }

    fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let at = self.bounds.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn write(&self, page: &mut MetricsPage<'_>) {
        let Histogram { name, help, bounds, counts, nanoseconds } = self;
        page.head(name, help, "histogram");
        let mut sum = 0;
        for (at, count) in counts.iter().enumerate() {
            sum += count.load(Ordering::Relaxed);
            let bound = bounds.get(at).map_or("+Inf".to_string(), f64::to_string);
            page.sample(&format!("{name}_bucket"), &[("le", &bound)], sum as f64);
        }
        page.sample(&format!("{name}_sum"), &[], nanoseconds.load(Ordering::Relaxed) as f64 / 1e9);
        page.sample(&format!("{name}_count"), &[], sum as f64);
    }
}

/// The text that is being written.
struct MetricsPage<'a> {
    text: String,
    model: &'a str,
}

impl MetricsPage<'_> {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a text does not fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.text, "{name}{{engine=\"0\",model_name=\"{}\"", escape(self.model));
        for (label, of) in labels {
            let _ = write!(self.text, ",{label}=\"{}\"", escape(of));
        }
        let _ = writeln!(self.text, "}} {value}");
    }

    fn single(&mut self, name: &str, help: &str, kind: &str, value: f64) {
        self.head(name, help, kind);
        self.sample(name, &[], value);
    }
}

impl MetricsPage<'_> {
    /// What is computed and what waits.
    fn requests(&mut self, running: usize, waiting: usize) {
        let mut gauge = |name, help, value: usize| self.single(name, help, "gauge", value as f64);
        gauge("vllm:num_requests_running", "Requests that are computed.", running);
        gauge("vllm:num_requests_waiting", "Requests that wait for room.", waiting);
    }

    /// How often a device came back.
    fn reopen_count(&mut self, count: u64) {
        let help = "How often a lost device was opened again.";
        self.single("tapml:device_reopened_total", help, "counter", count as f64);
    }

    /// Live calls that were checked.
    fn shadow(&mut self, stats: &ShadowStats) {
        let mut counter = |name, help, value: u64| self.single(name, help, "counter", value as f64);
        counter("tapml:shadow_calls_total", "Live calls that were checked on the source.", stats.calls);
        counter(
            "tapml:shadow_dropped_total",
            "Live calls that found no room to wait for their check.",
            stats.dropped,
        );
        counter("tapml:shadow_skipped_total", "Live calls that could not be checked.", stats.skipped);
        counter("tapml:shadow_unwritten_total", "Failing live calls that left no case.", stats.unwritten);
        let name = "tapml:shadow_failures_total";
        self.head(name, "Live calls that failed their check.", "counter");
        for ShadowFailures { op, kernel, calls } in &stats.failures {
            self.sample(name, &[("op", op), ("kernel", kernel)], *calls as f64);
        }
    }
}

/// The value of a label.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// See the module.
pub struct Metrics {
    prompt_tokens: AtomicU64,
    generation_tokens: AtomicU64,
    /// Ended requests by their [`REASONS`].
    ended: [AtomicU64; REASONS.len()],
    first_token: Histogram,
    next_token: Histogram,
    token_of_request: Histogram,
    whole: Histogram,
    queue: Histogram,
    prefill: Histogram,
    decode: Histogram,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let request = |name, help| Histogram::new(name, help, REQUEST);
        Metrics {
            prompt_tokens: AtomicU64::new(0),
            generation_tokens: AtomicU64::new(0),
            ended: Default::default(),
            first_token: Histogram::new(
                "vllm:time_to_first_token_seconds",
                "Time to the first token in seconds.",
                FIRST_TOKEN,
            ),
            next_token: Histogram::new(
                "vllm:inter_token_latency_seconds",
                "Time between tokens in seconds.",
                NEXT_TOKEN,
            ),
            token_of_request: Histogram::new(
                "vllm:request_time_per_output_token_seconds",
                "Mean time between the tokens of a request in seconds.",
                NEXT_TOKEN,
            ),
            whole: request("vllm:e2e_request_latency_seconds", "Time of a whole request in seconds."),
            queue: request(
                "vllm:request_queue_time_seconds",
                "Time from arrival to the first step in seconds.",
            ),
            prefill: request(
                "vllm:request_prefill_time_seconds",
                "Time from the first step to the first token in seconds.",
            ),
            decode: request(
                "vllm:request_decode_time_seconds",
                "Time from the first token to the last one in seconds.",
            ),
        }
    }
}

impl Metrics {
    /// A prompt was taken in.
    pub fn count_prompt(&self, tokens: usize) {
        self.prompt_tokens.fetch_add(tokens as u64, Ordering::Relaxed);
    }

    /// The first token of an answer came so long after its request.
    pub fn observe_first_token(&self, after: Duration) {
        self.generation_tokens.fetch_add(1, Ordering::Relaxed);
        self.first_token.observe(after);
    }

    /// A further token came so long after the one before it.
    pub fn observe_next_token(&self, after: Duration) {
        self.generation_tokens.fetch_add(1, Ordering::Relaxed);
        self.next_token.observe(after);
    }

    /// An answer ended, so long after its request; `None` if it failed.
    pub fn count_end(&self, finish: Option<Finish>, after: Duration) {
        let reason = match finish {
            Some(Finish::Stop) => 0,
            Some(Finish::Length | Finish::Context) => 1,
            Some(_) => 2,
            None => 3,
        };
        self.ended[reason].fetch_add(1, Ordering::Relaxed);
        self.whole.observe(after);
    }

    /// What the engine measured of an answer.
    pub fn observe_usage(&self, usage: &Usage) {
        self.queue.observe(usage.queued);
        self.prefill.observe(usage.prefill);
        self.decode.observe(usage.decode);
        if let Some(steps) =
            u32::try_from(usage.new_tokens).ok().and_then(|n| n.checked_sub(1)).filter(|n| *n > 0)
        {
            self.token_of_request.observe(usage.decode / steps);
        }
    }

    /// The page of an encoder, which has neither a cache nor tokens of its own.
    pub fn text_of_encoder(&self, model: &str, stats: &EmbeddingStats) -> String {
        let mut page = MetricsPage { text: String::new(), model };
        page.requests(stats.running, stats.waiting);
        let mut counter = |name, help, value| page.single(name, help, "counter", value);
        counter("tapml:embeddings_total", "Texts that were given a vector.", stats.finished as f64);
        counter(
            "tapml:encode_seconds_total",
            "Time in which the encoder worked.",
            stats.encode_time.as_secs_f64(),
        );
        page.reopen_count(stats.device_reopened);
        self.prompts_and_ends(&mut page);
        self.whole.write(&mut page);
        page.text
    }

    /// Tokens of prompts, and how requests ended.
    fn prompts_and_ends(&self, page: &mut MetricsPage<'_>) {
        let prompt_tokens = self.prompt_tokens.load(Ordering::Relaxed) as f64;
        page.single("vllm:prompt_tokens_total", "Tokens of prompts.", "counter", prompt_tokens);
        page.head("vllm:request_success_total", "Answers by how they ended.", "counter");
        for (reason, count) in REASONS.iter().zip(&self.ended) {
            let value = count.load(Ordering::Relaxed) as f64;
            page.sample("vllm:request_success_total", &[("finished_reason", reason)], value);
        }
    }

    /// The page.
    pub fn text(&self, model: &str, stats: &EngineStats, shadow: Option<&ShadowStats>) -> String {
        let mut page = MetricsPage { text: String::new(), model };
        page.requests(stats.running, stats.waiting);
        let used = stats.pages_used as f64 / (stats.pages.max(1)) as f64;
        page.single(
            "vllm:kv_cache_usage_perc",
            "Share of the cache's pages in use, 1 is all.",
            "gauge",
            used,
        );
        let mut counter = |name, help, value: u64| page.single(name, help, "counter", value as f64);
        counter(
            "vllm:prefix_cache_queries_total",
            "Tokens of prompts looked for in the prefix cache.",
            stats.prefix_queries,
        );
        counter("vllm:prefix_cache_hits_total", "Of these, tokens that were found.", stats.prefix_hits);
        counter("vllm:spec_decode_num_draft_tokens_total", "Tokens that were guessed.", stats.draft_tokens);
        counter(
            "vllm:spec_decode_num_accepted_tokens_total",
            "Of these, tokens that were right.",
            stats.accepted_tokens,
        );
        counter("tapml:logit_bytes_total", "Bytes of logits that the host read.", stats.logit_bytes);
        counter("vllm:num_preemptions_total", "Sequences that gave their pages up.", stats.preemptions);
        counter(
            "vllm:generation_tokens_total",
            "New tokens.",
            self.generation_tokens.load(Ordering::Relaxed),
        );
        page.reopen_count(stats.device_reopened);
        self.prompts_and_ends(&mut page);
        if let Some(shadow) = shadow {
            page.shadow(shadow);
        }
        for histogram in [
            &self.first_token,
            &self.next_token,
            &self.token_of_request,
            &self.whole,
            &self.queue,
            &self.prefill,
            &self.decode,
        ] {
            histogram.write(&mut page);
        }
        page.text
    }
}
