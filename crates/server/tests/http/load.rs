//! Many clients at once, and the end of a server.

use super::client::{JSON, get, open, post};
use super::fixture::{Fixture, NAME, Wishes};
use serde_json::{Value, json};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};
use tapml_server::ServerOptions;

const PATH: &str = "/v1/completions";

fn body(client: usize, stream: bool) -> Value {
    json!({ "prompt": format!("Client {client} had a dog"), "max_tokens": 40, "temperature": 0, "stream": stream })
}

/// The text of a stream's events.
fn text(events: &[Value]) -> String {
    events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect()
}

#[test]
fn many_clients_get_the_text_that_they_get_alone() {
    let server = Fixture::start();
    let address = server.address;
    let alone = |client| post(address, PATH, &body(client, false)).json()["choices"][0]["text"].clone();
    let expected: Vec<Value> = (0..64).map(alone).collect();
    let ask = |client: usize| {
        let sent = body(client, client.is_multiple_of(2)).to_string();
        let mut opened = open(address, "POST", PATH, &[JSON], sent.as_bytes());
        let mut first = Vec::new();
        if client.is_multiple_of(4) {
            // A reader that is slower than the model.
            for _ in 0..8 {
                thread::sleep(Duration::from_millis(50));
                first.push(serde_json::from_str(&opened.event()).unwrap());
            }
        }
        let reply = opened.rest();
        match client % 4 {
            0 => {
                first.extend(reply.events());
                json!(text(&first))
            }
            2 => json!(text(&reply.events())),
            _ => reply.json()["choices"][0]["text"].clone(),
        }
    };
    let found: Vec<Value> = thread::scope(|scope| {
        let clients: Vec<_> = (0..64).map(|client| scope.spawn(move || ask(client))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(found, expected);
    server.wait_idle();
}

/// The value of a sample that has all these words in its line.
fn sample(page: &str, words: &[&str]) -> f64 {
    let line =
        page.lines().find(|line| !line.starts_with('#') && words.iter().all(|word| line.contains(word)));
    let line = line.unwrap_or_else(|| panic!("{words:?}: {page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn what_happened_is_counted_under_the_names_of_vllm() {
    let server = Fixture::start();
    for client in 0..3 {
        post(server.address, PATH, &body(client, client == 1));
    }
    let ended = json!({ "prompt": "a", "max_tokens": 9, "logit_bias": { "1": 100 } });
    let prompts: u64 = post(server.address, PATH, &ended).json()["usage"]["prompt_tokens"].as_u64().unwrap();
    let reply = get(server.address, "/metrics");
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let page = reply.body;
    let one = |name: &str| sample(&page, &[&format!("{name}{{engine=\"0\",model_name=\"{NAME}\"")]);
    assert_eq!(one("vllm:generation_tokens_total"), 121.0);
    assert!(one("vllm:prompt_tokens_total") > prompts as f64);
    assert_eq!(sample(&page, &["vllm:request_success_total", "\"length\""]), 3.0);
    assert_eq!(sample(&page, &["vllm:request_success_total", "\"stop\""]), 1.0);
    for idle in ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"] {
        assert_eq!(one(idle), 0.0);
    }
    assert!(one("vllm:prefix_cache_queries_total") >= one("vllm:prefix_cache_hits_total"));
    assert_eq!(one("vllm:num_preemptions_total"), 0.0);
    for (name, count) in [
        ("time_to_first_token_seconds", 4.0),
        ("inter_token_latency_seconds", 117.0),
        ("e2e_request_latency_seconds", 4.0),
        ("request_queue_time_seconds", 4.0),
        ("request_time_per_output_token_seconds", 3.0),
    ] {
        let name = format!("vllm:{name}");
        assert_eq!(one(&format!("{name}_count")), count, "{name}");
        assert_eq!(sample(&page, &[&name, "le=\"+Inf\""]), count);
        assert!(one(&format!("{name}_sum")) > 0.0);
        let buckets = page.lines().filter(|line| line.starts_with(&format!("{name}_bucket")));
        let buckets: Vec<f64> =
            buckets.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        assert!(buckets.len() > 15 && buckets.is_sorted(), "{buckets:?}");
    }
    // Each name is described one time, before its samples.
    let described: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let mut names: Vec<&str> = described.iter().map(|line| line.split(' ').next().unwrap()).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
}

/// A server whose answers take a while, and a stream that has begun.
fn busy(grace: Duration) -> (Fixture, super::client::Opened) {
    let options = ServerOptions { grace, ..ServerOptions::default() };
    let slow = Wishes { server: options, step_time: Duration::from_millis(20), ..Wishes::default() };
    let server = Fixture::start_with(slow);
    let body = body(0, true).to_string();
    let mut stream = open(server.address, "POST", PATH, &[JSON], body.as_bytes());
    stream.event();
    (server, stream)
}

#[test]
fn a_server_that_stops_lets_requests_end() {
    let (server, stream) = busy(Duration::from_secs(20));
    let mut idle = TcpStream::connect(server.address).unwrap();
    server.stopper.stop();
    let address = server.address;
    let stopped = thread::spawn(move || server.join());
    let rest = stream.rest();
    assert!(rest.body.ends_with("data: [DONE]\n\n"), "{}", rest.body);
    assert!(rest.body.contains("\"finish_reason\":\"length\""), "{}", rest.body);
    stopped.join().unwrap().unwrap();
    assert!(TcpStream::connect(address).is_err(), "nobody listens");
    // A connection without a request is closed.
    assert_eq!(std::io::Read::read(&mut idle, &mut [0; 8]).unwrap_or(0), 0);
}

#[test]
fn requests_that_take_longer_than_the_grace_time_are_told() {
    let (server, stream) = busy(Duration::from_millis(100));
    server.stopper.stop();
    let start = Instant::now();
    let rest = stream.rest();
    server.join().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let events: Vec<&str> = rest.body.split_terminator("\n\n").collect();
    let [.., error, "data: [DONE]"] = events[..] else { panic!("{events:?}") };
    let error: Value = serde_json::from_str(error.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(error["error"]["type"], "server_error", "{error}");
}
