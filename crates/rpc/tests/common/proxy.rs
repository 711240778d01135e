//! A way to an agent that a test can make slow, make lose packets, silence, and cut.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How the way is. TCP sends lost packets again, so that what a program sees of a loss is a stall.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// How long bytes take in one direction.
    pub delay: Duration,
    /// Of how many pieces one is lost (0: none), and how long it takes to come again; what follows waits for it.
    pub loss: (u64, Duration),
    /// After so many bytes towards the agent, and towards the client, something happens.
    pub after: [Option<u64>; 2],
    /// Whether that is silence instead of an end.
    pub silent: bool,
}

/// Passes bytes on, for any number of connections, until it is cut.
pub struct Proxy {
    /// Where it listens.
    pub port: u16,
    line: Arc<Line>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Line {
    over: AtomicBool,
    to: AtomicU16,
    /// Bytes that went towards the agent.
    passed: Mutex<u64>,
    /// They became more.
    more: Condvar,
    ends: Mutex<Vec<TcpStream>>,
}

impl Line {
    fn end(&self) {
        // Nobody holds them afterwards, so that what still comes is refused.
        for tcp in self.ends.lock().unwrap().drain(..) {
            // It may have ended.
            let _ = tcp.shutdown(Shutdown::Both);
        }
    }
}

impl Proxy {
    /// In front of this port, without any fault.
    pub fn start(to: u16) -> Proxy {
        Proxy::start_in(to, Weather::default())
    }

    /// In front of this port.
    pub fn start_in(to: u16, weather: Weather) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let line = Arc::new(Line { to: AtomicU16::new(to), ..Line::default() });
        let own = line.clone();
        let thread = std::thread::spawn(move || {
            for client in listener.incoming() {
                let to = own.to.load(Ordering::Acquire);
                let (client, agent) = (client.unwrap(), TcpStream::connect(("127.0.0.1", to)));
                if own.over.load(Ordering::Acquire) {
                    return;
                }
                let Ok(agent) = agent else { continue };
                let both =
                    [&client, &agent].map(|tcp| tcp.set_nodelay(true).map(|()| tcp.try_clone().unwrap()));
                own.ends.lock().unwrap().extend(both.map(Result::unwrap));
                pass(&client, &agent, weather, 0, &own);
                pass(&agent, &client, weather, 1, &own);
            }
        });
        Proxy { port, line, thread }
    }

    /// Ends all connections; new ones go to this port.
    pub fn lead_to(&self, port: u16) {
        self.line.to.store(port, Ordering::Release);
        self.line.end();
    }

    /// Bytes that went towards the agent so far.
    pub fn passed_bytes(&self) -> u64 {
        *self.line.passed.lock().unwrap()
    }

    /// Waits until so many went. False if they did not in this time.
    pub fn wait_for_bytes(&self, bytes: u64, most: Duration) -> bool {
        let passed = self.line.passed.lock().unwrap();
        let waited = self.line.more.wait_timeout_while(passed, most, |passed| *passed < bytes).unwrap();
        !waited.1.timed_out()
    }

    /// Ends all connections, and takes none any more.
    pub fn cut(self) {
        self.line.over.store(true, Ordering::Release);
        self.line.end();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        self.thread.join().unwrap();
    }
}

/// Carries what comes from one side to the other, in order, late by what the weather says.
fn pass(from: &TcpStream, to: &TcpStream, weather: Weather, direction: usize, line: &Arc<Line>) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    let (push, pull) = mpsc::sync_channel::<(Instant, Vec<u8>)>(64);
    std::thread::spawn(move || {
        let mut piece = vec![0; 16 << 10];
        while let Ok(have @ 1..) = from.read(&mut piece) {
            if push.send((Instant::now() + weather.delay, piece[..have].to_vec())).is_err() {
                return;
            }
        }
    });
    let line = line.clone();
    std::thread::spawn(move || {
        let mut passed = 0;
        // The same pieces are lost whenever the same bytes go.
        let mut random = direction as u64;
        while let Ok((due, bytes)) = pull.recv() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if (random >> 33).checked_rem(weather.loss.0) == Some(0) {
                std::thread::sleep(weather.loss.1);
            }
            let left = weather.after[direction].map_or(u64::MAX, |after| after - passed);
            let now = bytes.len().min(left.try_into().unwrap_or(usize::MAX));
            if to.write_all(&bytes[..now]).is_err() {
                break;
            }
            passed += now as u64;
            if direction == 0 {
                *line.passed.lock().unwrap() += now as u64;
                line.more.notify_all();
            }
            if weather.after[direction] == Some(passed) {
                if weather.silent {
                    // Nothing is taken any more, and nothing told.
                    return std::mem::forget(pull);
                }
                return line.end();
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
