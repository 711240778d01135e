//! Sessions of an agent or hub with a token, 1,000 of them and 50 at once, with and without 300 idle strangers that come again as
//! soon as they are dropped; and what the agent's process holds meanwhile.

use super::{TOKEN, open, show};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tapml_device::{Device, Error, Result};

/// Rounds with strangers, and as many without.
const ROUNDS: usize = 5;

/// An agent of this program in a process of its own.
struct Agent {
    process: Child,
    place: String,
    word: String,
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Agent {
    fn start(kind: &str, folder: &Path) -> Result<Agent> {
        let failed = |e: std::io::Error| Error::bug(format!("no agent: {e}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["agent", kind]).env("TMPDIR", folder).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(failed)?;
        let mut line = String::new();
        if let Some(out) = process.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(failed)?;
        }
        let token = folder.join("token");
        tapml_testing::write_secret(&token, TOKEN).map_err(|e| Error::io("write", &token, &e))?;
        let (place, word) = line.trim().split_once(' ').unwrap_or_default();
        let word = format!("{word}&token-file={}", token.display());
        Ok(Agent { process, place: place.into(), word })
    }

    /// Memory in KiB, open files, threads, temporary files.
    fn footprint(&self, folder: &Path) -> [u64; 4] {
        let proc = Path::new("/proc").join(self.process.id().to_string());
        let status = std::fs::read_to_string(proc.join("status")).unwrap_or_default();
        let number = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        let count = |path: &Path| std::fs::read_dir(path).map_or(0, |all| all.count() as u64);
        [number("VmRSS:"), count(&proc.join("fd")), number("Threads:"), count(folder)]
    }
}

/// 300 connections that say nothing, each dialled again when it is dropped.
fn stay(at: &str, over: &AtomicBool, there: &AtomicBool) {
    let dial = || TcpStream::connect(at).and_then(|tcp| tcp.set_nonblocking(true).map(|()| tcp)).ok();
    let mut all: Vec<_> = (0..300).map(|_| dial()).collect();
    there.store(true, Ordering::Release);
    while !over.load(Ordering::Acquire) {
        for place in &mut all {
            let dropped = match place.as_mut().map(|tcp| tcp.read(&mut [0; 16])) {
                Some(Err(e)) => e.kind() != std::io::ErrorKind::WouldBlock,
                _ => true,
            };
            if dropped {
                *place = dial();
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// 1,000 sessions, 50 at once: how long each took to open, answer and close, milliseconds.
fn sessions(word: &str) -> Result<Vec<f64>> {
    let one = || {
        let start = Instant::now();
        open(word)?.wait()?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    };
    std::thread::scope(|scope| {
        let hands: Vec<_> =
            (0..50).map(|_| scope.spawn(|| (0..20).map(|_| one()).collect::<Result<Vec<f64>>>())).collect();
        let joined = hands.into_iter().map(|hand| hand.join().unwrap_or_else(|_| Err(Error::bug("a panic"))));
        Ok(joined.collect::<Result<Vec<_>>>()?.concat())
    })
}

/// See the module.
pub fn compare(kind: &str) -> Result<()> {
    println!("\n{kind}");
    let folder = tempfile::tempdir().map_err(|e| Error::bug(format!("no folder: {e}")))?;
    let agent = Agent::start(kind, folder.path())?;
    let address = agent.place.clone();
    sessions(&agent.word)?;
    let say = |when: &str| {
        std::thread::sleep(Duration::from_secs(1));
        let [memory, files, threads, temporary] = agent.footprint(folder.path());
        println!("{when}: {memory} KiB, {files} open files, {threads} threads, {temporary} temporary files");
    };
    say("before");
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(median(sessions(&agent.word)?));
        let (over, there) = (AtomicBool::new(false), AtomicBool::new(false));
        let times = std::thread::scope(|scope| {
            scope.spawn(|| stay(&address, &over, &there));
            while !there.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let times = sessions(&agent.word);
            say("with strangers");
            over.store(true, Ordering::Release);
            times
        });
        with.push(median(times?));
        say("after them");
    }
    let shares = without.iter().zip(&with).map(|(without, with)| with / without).collect();
    show("a session without strangers, ms, medians of the rounds", without);
    show("a session with them, ms", with);
    show("with them, of the time without, each pair of rounds", shares);
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
