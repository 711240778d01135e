//! Servers that say what no server says, or too much of it, and connections that break: an error each time, in time.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tapml_broker::Client;

const INFO: &str = "INFO {\"server_id\":\"x\",\"version\":\"2.10.0\",\"max_payload\":1048576,\"headers\":true,\"proto\":1}\r\n";

/// Serves each connection by `serve`, which gets its number; where the server is.
fn server(serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for (number, tcp) in listener.incoming().enumerate() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(number, tcp.unwrap()));
        }
    });
    url
}

/// Lets a client in.
fn welcome(tcp: &TcpStream) -> BufReader<TcpStream> {
    let (mut out, mut lines) = (tcp.try_clone().unwrap(), BufReader::new(tcp.try_clone().unwrap()));
    out.write_all(INFO.as_bytes()).unwrap();
    let mut line = String::new();
    while !line.starts_with("PING") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0);
    }
    out.write_all(b"PONG\r\n").unwrap();
    lines
}

/// Answers what a client asks, as far as these tests ask.
fn answer(tcp: TcpStream) {
    let mut lines = welcome(&tcp);
    let (mut out, mut line, mut sid) = (tcp, String::new(), String::new());
    loop {
        line.clear();
        if lines.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["SUB", _, number] => sid = number.to_string(),
            ["PUB", "$JS.API.INFO", inbox, _] => {
                write!(out, "MSG {inbox} {sid} 8\r\n{{\"a\": 1}}\r\n").unwrap();
            }
            ["PING"] => out.write_all(b"PONG\r\n").unwrap(),
            _ => {}
        }
    }
}

fn ask(client: &Client) -> tapml_graph::Result<u64> {
    let answer = client.api("INFO", &serde_json::Value::Null)?;
    Ok(answer.map_or(0, |value| value["a"].as_u64().unwrap()))
}

/// Waits until the client works again, by a connection after the first.
fn expect_recovery(client: &Client) {
    let until = Instant::now() + Duration::from_secs(20);
    while client.connections() < 2 || ask(client).ok() != Some(1) {
        assert!(Instant::now() < until, "it does not come back");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn sizes_that_are_none_end_the_connection_and_the_next_one_works() {
    for said in [
        "MSG a 1 18446744073709551610\r\n",
        "MSG a 1 18446744073709551615\r\nx\r\n",
        "HMSG a 1 12 18446744073709551610\r\nNATS/1.0\r\n\r\n",
        "MSG a 1 -1\r\n",
        "MSG a\r\n",
        "-ERR\r\n",
        "HMSG a 1 4 2\r\nabcd\r\n",
        "NONSENSE\r\n",
        "MSG a 1 5\r\n",
    ] {
        let url = server(move |number, mut tcp| {
            if number > 0 {
                return answer(tcp);
            }
            let _lines = welcome(&tcp);
            let _ = tcp.write_all(said.as_bytes());
        });
        let client = Client::connect(&url).unwrap();
        expect_recovery(&client);
    }
}

#[test]
fn what_is_larger_than_a_message_is_not_taken_in() {
    for said in ["MSG a 1 99999999999\r\n", "INFO ", ""] {
        let taken = Arc::new(AtomicUsize::new(0));
        let count = taken.clone();
        let url = server(move |number, mut tcp| {
            if number > 0 {
                return answer(tcp);
            }
            let _lines = welcome(&tcp);
            let _ = tcp.write_all(said.as_bytes());
            let piece = [b'x'; 1 << 16];
            while tcp.write_all(&piece).is_ok() {
                count.fetch_add(piece.len(), Ordering::Relaxed);
            }
        });
        let client = Client::connect(&url).unwrap();
        expect_recovery(&client);
        let taken = taken.load(Ordering::Relaxed);
        assert!(taken < 512 << 20, "{said}: {} MiB", taken >> 20);
    }
}

#[test]
fn what_is_no_nats_server_is_told_so() {
    for said in [
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "\u{1b}[31m a terminal takes this for a colour\r\n",
        "MSG a 1 18446744073709551610\r\n",
        "-ERR\r\n",
        "INFO {\r\n",
        "",
        "PING\r\n",
    ] {
        let url = server(move |_, mut tcp| {
            let _ = tcp.write_all(said.as_bytes());
        });
        let error = Client::connect(&url).err().unwrap();
        let text = error.to_string();
        assert!(text.contains("no broker answers") && error.hint().is_some(), "{text}");
        assert!(!text.contains('\u{1b}') && text.len() < 500, "{text}");
    }
    let url = server(|_, mut tcp| drop(tcp.read(&mut [0; 64])));
    let silent = Instant::now();
    assert!(Client::connect(&url).is_err() && silent.elapsed() < Duration::from_secs(15));
}

#[test]
fn what_was_asked_before_a_connection_broke_is_not_asked_on_the_next() {
    let (tell, told) = mpsc::channel();
    let url = server(move |number, tcp| {
        let mut lines = welcome(&tcp);
        if number == 0 {
            // What the client says from here on waits in vain.
            std::thread::sleep(Duration::from_millis(300));
            return drop(tcp.shutdown(std::net::Shutdown::Both));
        }
        let (mut line, mut out) = (String::new(), tcp);
        while lines.read_line(&mut line).unwrap_or(0) > 0 {
            if line.starts_with("PING") {
                out.write_all(b"PONG\r\n").unwrap();
            }
            let _ = tell.send(std::mem::take(&mut line));
        }
    });
    let client = Arc::new(Client::connect(&url).unwrap());
    let waits: Vec<_> = (0..4)
        .map(|_| client.clone())
        .map(|client| std::thread::spawn(move || client.request("lost.1", &[], b"").map(drop)))
        .collect();
    while client.connections() < 2 {
        // Also what is asked in the moment in which nobody knows of the loss.
        let _ = client.publish("lost.2", b"x");
    }
    for wait in waits {
        let start = Instant::now();
        let error = wait.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("broker"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(3), "it is told at once");
    }
    // On a slow machine the new connection may be taken for lost once more, and made anew.
    let start = Instant::now();
    while let Err(error) = client.publish("found", b"x") {
        assert!(start.elapsed() < Duration::from_secs(10), "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut said = String::new();
    while !said.contains("PUB found") {
        said += &told.recv_timeout(Duration::from_secs(10)).unwrap();
    }
    // The loop above may have published on the new connection before it looked.
    assert!(!said.contains("lost.1"), "{said}");
    let late = said.matches("PUB lost.2").count();
    assert!(late <= 1, "{late} of before the loss");
}

#[test]
fn a_server_that_never_ends_its_first_line_is_given_up() {
    let taken = Arc::new(AtomicUsize::new(0));
    let count = taken.clone();
    let url = server(move |_, mut tcp| {
        let piece = [b'x'; 1 << 16];
        while tcp.write_all(&piece).is_ok() {
            count.fetch_add(piece.len(), Ordering::Relaxed);
        }
    });
    let start = Instant::now();
    let error = Client::connect(&url).err().unwrap();
    assert!(error.to_string().contains("no broker answers"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(15));
    // The library knows no bound here. Time is one: it looks for the line's end from the start each time.
    let taken = taken.load(Ordering::Relaxed);
    assert!(taken < 1 << 30, "{} MiB", taken >> 20);
}
