//! A NATS server for tests.
#![allow(dead_code)]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tapml_broker::Client;

/// `nats-server` with JetStream in a folder of its own.
pub struct Server {
    process: Child,
    pub url: String,
    port: u16,
    folder: tempfile::TempDir,
}

fn run(folder: &Path, port: u16) -> Option<Child> {
    let mut command = Command::new("nats-server");
    command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"]).arg(folder.join("store"));
    command.arg("-c").arg(folder.join("server.conf"));
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}

impl Server {
    /// A server with settings, and what its address says beside the port; a counted skip where there is no server.
    pub fn start(settings: &str, address: impl Fn(u16) -> String) -> Option<Server> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("server.conf"), settings).unwrap();
        let Some(process) = run(folder.path(), port) else {
            tapml_testing::skip("nats-server", "it is not installed");
            return None;
        };
        let server = Server { process, url: address(port), port, folder };
        server.ready();
        Some(server)
    }

    /// A server without settings.
    pub fn plain() -> Option<Server> {
        Server::start("", |port| format!("nats://127.0.0.1:{port}"))
    }

    fn ready(&self) {
        let until = Instant::now() + Duration::from_secs(20);
        // It takes connections before it speaks, and resets some of them.
        while let Err(error) = Client::connect(&self.url) {
            assert!(Instant::now() < until, "the server does not start: {error}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub fn restart(&mut self) {
        self.process = run(self.folder.path(), self.port).unwrap();
        self.ready();
    }

    /// Starts it again with nothing that it knew.
    pub fn again_empty(&mut self) {
        self.folder = tempfile::tempdir().unwrap();
        std::fs::write(self.folder.path().join("server.conf"), "").unwrap();
        self.restart();
    }

    pub fn client(&self) -> Arc<Client> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            match Client::connect(&self.url) {
                Ok(client) => return Arc::new(client),
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Tries until it works.
pub fn wait_until<T>(mut what: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(done) = what() {
            return done;
        }
        assert!(Instant::now() < until, "it does not come to pass");
        std::thread::sleep(Duration::from_millis(20));
    }
}
