//! A connection that is read by one thread and written by others: TCP, or TLS on top of it.

use crate::awake::{Awake, has_something};
use rustls::{ClientConnection, Connection, ServerConnection};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Plain bytes given to TLS at once.
const PLAIN: usize = 32 << 10;

/// How long the other side may take no byte of what is sent to it.
pub const SLOW: Duration = Duration::from_secs(30);

/// How long the other side's system may answer nothing: a laptop whose lid is closed for less finds its session again, and a
/// session whose connection is gone ends within a minute.
#[cfg(target_os = "linux")]
const GONE: Duration = Duration::from_secs(45);

/// The writing side, shared.
pub struct Link {
    tcp: TcpStream,
    tls: Option<Mutex<Connection>>,
    /// Whether this side has dialled: its frames are masked then.
    dialled: bool,
    /// Held while a frame is written.
    out: Mutex<()>,
    wait_timeout: Mutex<WaitTimeout>,
    /// Whether the other side has sent anything.
    heard: AtomicBool,
}

/// How long the other side is waited for.
#[derive(Clone, Copy)]
struct WaitTimeout {
    /// When it must have been let in: until then no read and no write goes on for longer.
    until: Option<Instant>,
    /// How long it may take no byte of what is sent to it afterwards.
    slow: Duration,
}

/// The reading side. What it writes (a WebSocket's own answers) goes through the shared side.
pub struct Reader {
    link: Arc<Link>,
    /// Bytes received and not yet given to TLS.
    raw: Vec<u8>,
    awake: Awake,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// A connection; TLS if there is a configuration. The whole handshake must end in time.
    pub fn open(
        tcp: TcpStream,
        tls: Option<&Arc<rustls::ServerConfig>>,
        within: Duration,
    ) -> io::Result<(Arc<Link>, Reader)> {
        let tls = tls.map(|config| ServerConnection::new(config.clone())).transpose();
        let tls = tls.map_err(io::Error::other)?.map(Connection::from);
        Link::from_stream(tcp, tls, false, within)
    }

    /// A connection that this side has dialled.
    pub fn dial(
        tcp: TcpStream,
        tls: Option<ClientConnection>,
        within: Duration,
    ) -> io::Result<(Arc<Link>, Reader)> {
        Link::from_stream(tcp, tls.map(Connection::from), true, within)
    }

    fn from_stream(
        tcp: TcpStream,
        tls: Option<Connection>,
        dialled: bool,
        within: Duration,
    ) -> io::Result<(Arc<Link>, Reader)> {
        tcp.set_nodelay(true)?;
        keep_alive(&tcp)?;
        let patience = Mutex::new(WaitTimeout { until: Some(Instant::now() + within), slow: SLOW });
        let (out, heard) = (Mutex::default(), AtomicBool::new(false));
        let link =
            Arc::new(Link { tcp, tls: tls.map(Mutex::new), dialled, out, wait_timeout: patience, heard });
        let reader = Reader { link: link.clone(), raw: Vec::new(), awake: Awake::default() };
        Ok((link, reader))
    }

    /// How long the other side may take no byte of what is sent to it once it is let in, if that is not [`SLOW`].
    pub fn expect_within(&self, time: Duration) {
        lock(&self.wait_timeout).slow = time;
    }

    /// What comes next must end within a time from now.
    pub fn allow(&self, within: Duration) {
        lock(&self.wait_timeout).until = Some(Instant::now() + within);
    }

    /// Whether the other side has sent nothing.
    pub fn is_silent(&self) -> bool {
        !self.heard.load(Ordering::Acquire) && !has_something(&SockRef::from(&self.tcp))
    }

    /// What is left of the time until the other side must have been let in; `None` if it is.
    fn time_left(&self) -> io::Result<Option<Duration>> {
        let Some(until) = lock(&self.wait_timeout).until else { return Ok(None) };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }

    /// Writes all of this. Who takes a byte now and then gets no more time than who takes none.
    fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if let Some(left) = self.time_left()? {
                self.tcp.set_write_timeout(Some(left))?;
            }
            match (&self.tcp).write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => bytes = &bytes[taken..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends one binary WebSocket message.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.frame(2, bytes)
    }

    /// Sends a WebSocket ping, which the other side answers by itself.
    pub fn ping(&self) -> io::Result<()> {
        self.frame(9, &[])
    }

    fn frame(&self, opcode: u8, bytes: &[u8]) -> io::Result<()> {
        let masked = if self.dialled { 0x80 } else { 0 };
        let mut head = vec![0x80 | opcode];
        match bytes.len() {
            len @ 0..126 => head.push(masked | len as u8),
            len @ 126..0x1_0000 => {
                head.push(masked | 126);
                head.extend((len as u16).to_be_bytes());
            }
            len => {
                head.push(masked | 127);
                head.extend((len as u64).to_be_bytes());
            }
        }
        if self.dialled {
            let mut key = [0; 4];
            getrandom::fill(&mut key).map_err(io::Error::other)?;
            head.extend(key);
            let start = head.len();
            head.extend_from_slice(bytes);
            mask(&mut head[start..], key);
            return self.write(&[&head]);
        }
        if bytes.len() < crate::pipe::AT_ONCE {
            head.extend_from_slice(bytes);
            return self.write(&[&head]);
        }
        self.write(&[&head, bytes])
    }

    /// Ends the connection in both directions.
    pub fn close(&self) {
        let _ = self.tcp.shutdown(Shutdown::Both);
    }

    /// Tells the other side that nothing follows.
    pub fn finish(&self) {
        // Status 1000: a normal end.
        let _ = self.frame(8, &1000u16.to_be_bytes());
        self.finish_plain();
    }

    /// Tells the other side, which speaks no WebSocket, that nothing follows.
    pub fn finish_plain(&self) {
        if let Some(tls) = &self.tls {
            lock(tls).send_close_notify();
            let _ = self.write(&[]);
        }
        let _ = self.tcp.shutdown(Shutdown::Write);
    }

    fn write(&self, parts: &[&[u8]]) -> io::Result<()> {
        let _held = lock(&self.out);
        let Some(tls) = &self.tls else {
            return parts.iter().try_for_each(|part| self.write_all(part));
        };
        let mut sealed = Vec::new();
        for part in parts {
            for plain in part.chunks(PLAIN) {
                seal(&mut lock(tls), plain, &mut sealed)?;
                // The lock is not held while the network takes its time: the reader needs it.
                self.write_all(&sealed)?;
                sealed.clear();
            }
        }
        seal(&mut lock(tls), &[], &mut sealed)?;
        self.write_all(&sealed)
    }
}

/// What a side that has dialled does to the bytes of its frames.
fn mask(bytes: &mut [u8], key: [u8; 4]) {
    let key = u32::from_ne_bytes(key);
    let wide = u64::from(key) << 32 | u64::from(key);
    let mut words = bytes.chunks_exact_mut(8);
    for word in &mut words {
        let value =
            u64::from_ne_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]);
        word.copy_from_slice(&(value ^ wide).to_ne_bytes());
    }
    let rest = words.into_remainder().iter_mut().zip(wide.to_ne_bytes());
    rest.for_each(|(byte, key)| *byte ^= key);
}

/// A connection whose other side has gone without a word is found out by the system, also while nothing is said.
fn keep_alive(tcp: &TcpStream) -> io::Result<()> {
    let probes = TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5));
    #[cfg(unix)]
    let probes = probes.with_retries(7);
    SockRef::from(tcp).set_tcp_keepalive(&probes)?;
    #[cfg(target_os = "linux")]
    SockRef::from(tcp).set_tcp_user_timeout(Some(GONE))?;
    Ok(())
}

fn seal(tls: &mut Connection, mut plain: &[u8], sealed: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let taken = tls.writer().write(plain)?;
        if taken == 0 && !plain.is_empty() && !tls.wants_write() {
            return Err(io::Error::other("the TLS connection takes no data"));
        }
        plain = &plain[taken..];
        while tls.wants_write() {
            tls.write_tls(sealed)?;
        }
        if plain.is_empty() {
            return Ok(());
        }
    }
}

impl Reader {
    /// The other side is let in: from here on a read returns after `tick` at the latest.
    pub fn let_in(&mut self, tick: Duration) -> io::Result<()> {
        let slow = {
            let mut patience = lock(&self.link.wait_timeout);
            patience.until = None;
            patience.slow
        };
        self.link.tcp.set_write_timeout(Some(slow))?;
        self.link.tcp.set_read_timeout(Some(tick))
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.link.time_left()?;
        let tcp = &self.link.tcp;
        if left.is_some() {
            tcp.set_read_timeout(left)?;
        }
        let have = self.awake.read(&SockRef::from(tcp), || (&*tcp).read(buffer))?;
        self.link.heard.store(true, Ordering::Release);
        Ok(have)
    }

    /// Reads and forgets what still comes, so that the other side, which is told why it is not heard, gets to read that before
    /// the connection ends; for a time at most.
    pub fn drain(&mut self, within: Duration) {
        self.link.allow(within);
        while self.read(&mut [0; 16 << 10]).is_ok_and(|have| have > 0) {}
    }

    /// One round of TLS: plain bytes if there are any, else `None` after some progress.
    fn open_some(&mut self, tls: &Mutex<Connection>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        {
            let mut tls = lock(tls);
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done.map(Some),
            }
            if !self.raw.is_empty() {
                let mut left = self.raw.as_slice();
                let fed = tls.read_tls(&mut left)?;
                self.raw.drain(..fed);
                let outcome = tls.process_new_packets();
                drop(tls);
                // Answers of the handshake, and an alert if it failed.
                self.link.write(&[])?;
                outcome.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
                return Ok(None);
            }
        }
        let mut raw = [0; 16 << 10];
        let have = self.receive(&mut raw)?;
        if have == 0 {
            return Ok(Some(0));
        }
        self.raw.extend_from_slice(&raw[..have]);
        Ok(None)
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let link = self.link.clone();
        let Some(tls) = &link.tls else { return self.receive(buffer) };
        loop {
            if let Some(have) = self.open_some(tls, buffer)? {
                return Ok(have);
            }
        }
    }
}

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.link.write(&[bytes])?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
