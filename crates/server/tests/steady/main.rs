//! Ten thousand requests, good and bad ones, whole and broken off, in a process of their own: each is answered, and afterwards
//! the process has the files, threads and memory that it had.
#![allow(clippy::unwrap_used)]
#![allow(dead_code, reason = "parts of the fixture that other tests use")]

#[path = "../http/client.rs"]
mod client;
#[path = "../http/fixture.rs"]
mod fixture;

use client::{JSON, open, post};
use fixture::Fixture;
use serde_json::{Value, json};
use std::net::SocketAddr;

const REQUESTS: usize = 10_000;
const THREADS: usize = 16;

/// One of seven kinds of requests; its answer is looked at.
fn ask(address: SocketAddr, number: usize) {
    let messages = json!([{ "role": "user", "content": format!("Number {number}") }]);
    let completion = |more: Value| {
        let mut body = json!({ "prompt": format!("Say {number}"), "max_tokens": 3 });
        more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
        body
    };
    match number % 7 {
        0 => drop(
            post(address, "/v1/completions", &completion(json!({}))).json()["choices"][0]["text"]
                .as_str()
                .unwrap(),
        ),
        1 => assert!(
            post(address, "/v1/completions", &completion(json!({ "stream": true }))).events().len() > 1
        ),
        2 => {
            let form = json!({ "messages": messages, "guided_choice": ["yes", "no"], "max_tokens": 9 });
            let answer = post(address, "/v1/chat/completions", &form).json();
            let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
            assert!(["yes", "no"].contains(&text), "{answer}");
        }
        3 => drop(post(address, "/v1/completions", &completion(json!({ "temperature": "hot" }))).error(400)),
        4 => drop(post(address, "/v1/completions", &completion(json!({ "guided_regex": "(" }))).error(400)),
        5 => {
            // A client that goes away in the middle of its stream.
            let body = completion(json!({ "stream": true, "max_tokens": 100 })).to_string();
            let mut stream = open(address, "POST", "/v1/completions", &[JSON], body.as_bytes());
            assert_eq!(stream.status, 200);
            stream.event();
        }
        _ => {
            assert_eq!(post(address, "/tokenize", &json!({ "prompt": format!("Cut {number}") })).status, 200)
        }
    }
}

fn ask_all(server: &Fixture, count: usize) {
    let address = server.address;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || (thread..count).step_by(THREADS).for_each(|number| ask(address, number)));
        }
    });
    server.wait_idle();
}

/// Open files, threads and KiB of memory of this process.
fn resources() -> (usize, usize, usize) {
    let entries = |folder: &str| std::fs::read_dir(folder).unwrap().count();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let memory = line.trim().split(' ').next().unwrap().parse().unwrap();
    (entries("/proc/self/fd"), entries("/proc/self/task"), memory)
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "only Linux tells what a process has")]
fn ten_thousand_requests_leave_nothing_behind() {
    let server = Fixture::start();
    // Caches, arenas of threads and the compiler of grammars have their size afterwards.
    ask_all(&server, REQUESTS / 5);
    let before = resources();
    ask_all(&server, REQUESTS);
    let after = resources();
    println!("files, threads, KiB: {before:?} before {REQUESTS} requests, {after:?} after");
    // Connections that were closed by clients may take a moment to be seen.
    assert!(after.0 <= before.0 + THREADS, "{before:?} {after:?}");
    assert!(after.1 <= before.1 + THREADS, "{before:?} {after:?}");
    // A leak of 2 KB a request would be 20 MB.
    assert!(after.2 <= before.2 + 16 * 1024, "{before:?} {after:?}");
}
