//! A connection that a test can cut.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// Passes bytes on until it is cut.
pub struct Proxy {
    /// Where it listens.
    pub port: u16,
    cut: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Proxy {
    /// In front of this port.
    pub fn start(to: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cut, wait) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let agent = TcpStream::connect(("127.0.0.1", to)).unwrap();
            let pass = |from: &TcpStream, to: &TcpStream| {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || drop(std::io::copy(&mut from, &mut to)))
            };
            let _threads = [pass(&client, &agent), pass(&agent, &client)];
            wait.recv().unwrap();
            client.shutdown(Shutdown::Both).unwrap();
            agent.shutdown(Shutdown::Both).unwrap();
        });
        Proxy { port, cut, thread }
    }

    /// Ends both connections.
    pub fn cut(self) {
        self.cut.send(()).unwrap();
        self.thread.join().unwrap();
    }
}
