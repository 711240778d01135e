//! A running `tapml serve`.

use super::common::draft;
use serde_json::{Value, json as value};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server on a free port, which is killed when this is dropped.
pub struct ServeProcess {
    pub process: Child,
    pub report: Value,
}

impl ServeProcess {
    pub fn start(folder: &Path, arguments: &[&str]) -> ServeProcess {
        ServeProcess::start_model(&draft(), folder, arguments)
    }

    pub fn start_model(model: &str, folder: &Path, arguments: &[&str]) -> ServeProcess {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tapml"));
        command.current_dir(folder).args(["serve", model, "--json", "-"]).args(arguments);
        if !arguments.contains(&"--port") {
            command.args(["--port", "0"]);
        }
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut text = String::new();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        // The report is an object over several lines.
        while !text.ends_with("\n}\n") {
            assert_ne!(lines.read_line(&mut text).unwrap(), 0, "{}", rest(&mut process));
        }
        ServeProcess { process, report: serde_json::from_str(&text).unwrap() }
    }

    pub fn post(&self, path: &str, headers: &str, body: &Value) -> (u16, Value) {
        let (address, body) = (self.report["address"].as_str().unwrap(), body.to_string());
        let mut tcp = TcpStream::connect(address).unwrap();
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        tcp.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap())
    }

    /// Asks it to end, as a service manager does.
    pub fn stop(mut self) -> (Option<i32>, String) {
        Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status().unwrap();
        let text = rest(&mut self.process);
        (self.process.wait().unwrap().code(), text)
    }
}

/// What it said on standard error.
fn rest(process: &mut Child) -> String {
    let mut text = String::new();
    process.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The value of a counter in the page for Prometheus.
pub fn counter(page: &str, name: &str) -> u64 {
    let line = page.lines().find(|line| line.starts_with(name) && !line.contains('#'));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

impl ServeProcess {
    pub fn get(&self, path: &str) -> String {
        let address = self.report["address"].as_str().unwrap();
        let mut tcp = TcpStream::connect(address).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        tcp.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_string()
    }

    /// Asks for some texts at once, then waits until so many live calls have their verdict; gives the metrics.
    pub fn load_until_checked(&self, calls: u64) -> String {
        let ask = |prompt: &str| {
            let body = value!({ "prompt": prompt, "max_tokens": 4, "temperature": 0, "ignore_eos": true });
            assert_eq!(self.post("/v1/completions", "", &body).0, 200);
        };
        std::thread::scope(|scope| {
            let ask = &ask;
            let _ = ["Once upon a time", "The", "A dog"].map(|prompt| scope.spawn(move || ask(prompt)));
        });
        let begun = std::time::Instant::now();
        loop {
            let page = self.get("/metrics");
            assert!(begun.elapsed().as_secs() < 240, "{page}");
            if counter(&page, "tapml:shadow_calls_total") >= calls {
                return page;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}
