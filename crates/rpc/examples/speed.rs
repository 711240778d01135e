//! How fast a remote device answers and moves bytes: `cargo run -p tapml-rpc --example speed -- ws://127.0.0.1:7070/emulator`.
//! Without an address, agents of its own with the emulator, in a process for each session: in plain text, then with TLS, then
//! 1,000 sessions one after the other and 50 at once. With `steps`, what the wire adds to steps of a device whose kernels take
//! 1 ms. With `hub`, an agent behind a hub; with `browser`, a tab of Chromium behind one
//! (`browser http://127.0.0.1:8000` takes the page that is served there). With `strangers`, sessions of an agent, one with TLS and a
//! hub beside 300 idle connections without a token. Prints medians and ranges.

#[path = "speed/sleeper.rs"]
mod sleeper;
#[path = "speed/strangers.rs"]
mod strangers;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tapml_device::{Device, Error, Result};
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_rpc::agent::{Agent, Config, Isolation, run_session};
use tapml_rpc::hub::Hub;
use tapml_rpc::{Address, Offer, Offered, RemoteDevice};
use tapml_testing::Browser;

/// The emulator, whatever is asked for.
struct Emulators;

impl Offer for Emulators {
    fn list(&self) -> Vec<Offered> {
        vec![("emulator".into(), Emulator::new(EmulatorOptions::default()).map(|e| e.info().clone()))]
    }

    fn open(&self, name: &str, options: &str) -> Result<Box<dyn Device>> {
        Ok(match name {
            "sleeper" => Box::new(sleeper::Sleeper::new(options)),
            _ => Box::new(Emulator::new(EmulatorOptions::parse(options)?)?),
        })
    }
}

/// A certificate and its key, as files.
fn certificate() -> Result<(tempfile::TempDir, [PathBuf; 2])> {
    let folder =
        tempfile::tempdir().map_err(|e| Error::io("create a folder in", &std::env::temp_dir(), &e))?;
    let files = [
        ("cert.pem", include_bytes!("../tests/data/cert.pem").as_slice()),
        ("key.pem", include_bytes!("../tests/data/key.pem")),
    ];
    let write = |(name, bytes): (&str, &[u8])| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).map_err(|e| Error::io("write", &path, &e))?;
        Ok(path)
    };
    let [cert, key] = files.map(write);
    let paths = [cert?, key?];
    Ok((folder, paths))
}

/// Each session is this program once more.
fn sessions_of_this_program() -> Isolation {
    let program = std::env::current_exe().unwrap_or_default();
    Isolation::Process(Arc::new(move || {
        let mut command = Command::new(&program);
        command.arg("session");
        command
    }))
}

/// The address of an agent of this very program.
fn own_agent(tls: Option<[&Path; 2]>) -> Result<String> {
    let sealed = tls.map(|[cert, key]| tapml_rpc::tls::server(cert, key)).transpose()?;
    let config = Config { tls: sealed, sessions: 50, ..Config::default() };
    let agent = Agent::bind("127.0.0.1:0", config, sessions_of_this_program())?;
    let word = match tls {
        None => format!("ws://{}/emulator", agent.address()),
        Some([cert, _]) => format!("wss://{}/emulator?ca={}", agent.address(), cert.display()),
    };
    std::thread::spawn(move || agent.serve());
    Ok(word)
}

/// The token of [`lone_agent`].
const TOKEN: &str = "a token for this program";

/// An agent that wants a token and does nothing else, `plain`, with `tls`, or behind a `hub` that wants it; prints its word.
fn lone_agent() -> Result<()> {
    let kind = std::env::args().nth(2).unwrap_or_default();
    let (folder, [cert, key]) = certificate()?;
    let mut config = Config { token: Some(TOKEN.into()), sessions: 128, ..Config::default() };
    if kind == "tls" {
        config.tls = Some(tapml_rpc::tls::server(&cert, &key)?);
    }
    if kind != "hub" {
        let agent = Agent::bind("127.0.0.1:0", config, sessions_of_this_program())?;
        let (scheme, ca) =
            if kind == "tls" { ("wss", format!("ca={}", cert.display())) } else { ("ws", String::new()) };
        println!("{} {scheme}://{}/emulator?{ca}", agent.address(), agent.address());
        return agent.serve();
    }
    let hub = tapml_rpc::hub::Config { token: Some(TOKEN.into()), ..Default::default() };
    let hub = Hub::bind("127.0.0.1:0", hub)?;
    let place = hub.address();
    println!("{place} hub/emulator?hub=ws://{place}");
    let token = folder.path().join("token");
    tapml_testing::write_secret(&token, TOKEN).map_err(|e| Error::io("write", &token, &e))?;
    let mut agent = Agent::new(config, sessions_of_this_program())?;
    let options =
        [("hub".into(), format!("ws://{place}")), ("token-file".into(), token.display().to_string())];
    agent.join(tapml_rpc::agent::Hub { address: Address::parse("hub", &options)?, name: "here".into() });
    std::thread::spawn(move || agent.serve());
    hub.serve()
}

/// Where a browser's page is served, if not by the hub: another build of `web/`, to compare both.
fn page() -> Option<String> {
    std::env::args().nth(2)
}

/// An agent of a hub, of this very program.
fn agent_of(hub: &str) -> Result<()> {
    let mut agent = Agent::new(Config::default(), sessions_of_this_program())?;
    let address = Address::parse("hub", &[("hub".into(), hub.into())])?;
    agent.join(tapml_rpc::agent::Hub { address, name: "here".into() });
    std::thread::spawn(move || agent.serve());
    Ok(())
}

/// Measures the one device that `agent` brings to a hub of this process.
fn behind_a_hub<T>(agent: impl FnOnce(String) -> Result<T>) -> Result<()> {
    let origins = page().into_iter().collect();
    let hub = Hub::bind("127.0.0.1:0", tapml_rpc::hub::Config { origins, ..Default::default() })?;
    let place = format!("ws://{}", hub.address());
    std::thread::spawn(move || hub.serve());
    let _agent = agent(place.clone())?;
    let all = Address::parse("hub", &[("hub".into(), place.clone())])?;
    let until = Instant::now() + Duration::from_secs(60);
    let name = loop {
        match tapml_rpc::client::offers(&all)?.first() {
            Some(offer) => break offer.name.clone(),
            None if Instant::now() > until => return Err(Error::bug("nobody has dialled in")),
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    };
    println!("hub/{name}");
    run(&format!("hub/{name}?hub={place}"))
}

const MIB: usize = 1 << 20;

fn main() {
    let done = match std::env::args().nth(1).as_deref() {
        Some("session") => run_session(&Emulators),
        Some("agent") => lone_agent(),
        Some("strangers") => ["plain", "tls", "hub"].iter().try_for_each(|kind| strangers::compare(kind)),
        Some("steps") => own_agent(None).and_then(|word| steps(&word)),
        Some("hub") => behind_a_hub(|hub| agent_of(&hub)),
        Some("browser") => behind_a_hub(|hub| {
            let served = page().unwrap_or_else(|| hub.replace("ws://", "http://"));
            let page = format!("{served}/#name=tab&hub={hub}");
            Browser::open(&page).map_err(|e| Error::bug(format!("no Chromium: {e}")))
        }),
        Some(word) => run(word),
        None => all(),
    };
    if let Err(error) = done {
        eprintln!("error: {error}");
        std::process::exit(2);
    }
}

/// Everything on agents of its own.
fn all() -> Result<()> {
    let plain = own_agent(None)?;
    println!("plain text");
    run(&plain)?;
    let (_folder, [cert, key]) = certificate()?;
    println!("\nTLS");
    run(&own_agent(Some([&cert, &key]))?)?;
    println!("\nsessions, plain text");
    sessions(&plain)
}

fn open(word: &str) -> Result<RemoteDevice> {
    let (word, options) = word.split_once('?').unwrap_or((word, ""));
    let options: Vec<(String, String)> =
        options.split('&').filter_map(|o| o.split_once('=')).map(|(n, v)| (n.into(), v.into())).collect();
    RemoteDevice::open(&Address::parse(word, &options)?)
}

/// Memory in KiB and open files of this process, which holds agent and clients; 0 where there is no `/proc`.
fn footprint() -> (u64, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or_default();
    let memory = line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
    (memory, std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count))
}

fn sessions(word: &str) -> Result<()> {
    let session = || open(word).and_then(|mut device| device.wait());
    repeat(100, session)?;
    std::thread::sleep(Duration::from_secs(1));
    let before = footprint();
    let times = repeat(1000, session)?;
    std::thread::sleep(Duration::from_secs(1));
    show("open, wait, close, 1,000 times, ms", times.iter().map(|t| t.as_secs_f64() * 1e3).collect());
    println!("memory (KiB) and open files: {before:?} before, {:?} after", footprint());
    let start = Instant::now();
    let mut open: Vec<RemoteDevice> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..50).map(|_| scope.spawn(|| open(word))).collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err(Error::bug("a thread panicked"))))
            .collect::<Result<_>>()
    })?;
    println!("50 sessions opened at once: {:.0} ms until the last", start.elapsed().as_secs_f64() * 1e3);
    let times = repeat(20, || open.iter_mut().try_for_each(Device::wait))?;
    show(
        "a round trip with each of them, one after the other, us each",
        times.iter().map(|t| t.as_secs_f64() * 1e6 / 50.0).collect(),
    );
    Ok(())
}

fn run(word: &str) -> Result<()> {
    let mut device = open(word)?;
    let waits = repeat(2000, || device.wait())?;
    show("round trip, us", waits.iter().map(|t| t.as_secs_f64() * 1e6).collect());
    let small = device.create_buffer("small", 4096)?;
    let mut word = [0; 4];
    let pairs = repeat(1000, || {
        device.write(small, 0, &[1, 2, 3, 4])?;
        device.read(small, 0, &mut word)
    })?;
    show("write and read of 4 bytes, us", pairs.iter().map(|t| t.as_secs_f64() * 1e6).collect());
    for size in [MIB, 16 * MIB, 64 * MIB] {
        let large = device.create_buffer("large", size as u64)?;
        let data: Vec<u8> = (0..size).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        let mut out = vec![0; size];
        // The first contents of a buffer go by their hash; the others straight.
        device.write(large, 0, &data)?;
        device.wait()?;
        let up = repeat(9, || device.write(large, 0, &data).and_then(|()| device.wait()))?;
        let down = repeat(9, || device.read(large, 0, &mut out))?;
        let rate = |all: &[Duration]| all.iter().map(|t| size as f64 / 1e6 / t.as_secs_f64()).collect();
        show(&format!("upload of {} MiB, MB/s", size / MIB), rate(&up));
        show(&format!("download of {} MiB, MB/s", size / MIB), rate(&down));
        device.destroy_buffer(large)?;
    }
    for round in ["sent", "held"] {
        let data: Vec<u8> = (0..64 * MIB).map(|i| (i.wrapping_mul(40_503) >> 7) as u8 ^ 0x55).collect();
        let buffer = device.create_buffer("weight", data.len() as u64)?;
        let times = repeat(1, || device.write(buffer, 0, &data).and_then(|()| device.wait()))?;
        let rates = times.iter().map(|t| data.len() as f64 / 1e6 / t.as_secs_f64()).collect();
        show(&format!("first contents, 64 MiB, {round}, MB/s"), rates);
        device.destroy_buffer(buffer)?;
    }
    println!("first contents: {:?} bytes sent and held", device.saved_bytes());
    Ok(())
}

/// Steps here and there by turns, as a decoded token is one.
fn steps(word: &str) -> Result<()> {
    let word = word.replace("/emulator", "/sleeper");
    for (kernel, answer) in
        [(0, 4 << 10), (300, 4 << 10), (1000, 4 << 10), (1000, 512 << 10), (3000, 4 << 10)]
    {
        let mut devices: [(Box<dyn Device>, Vec<Duration>); 2] = [
            (Box::new(sleeper::Sleeper::new(&format!("us={kernel}"))), Vec::new()),
            (Box::new(open(&format!("{word}?us={kernel}"))?), Vec::new()),
        ];
        for _ in 0..10 {
            for (device, times) in &mut devices {
                times.extend(sleeper::steps(device.as_mut(), answer, 40)?);
            }
        }
        let [here, there] = devices.map(|(_, times)| times.iter().map(|t| t.as_secs_f64() * 1e6).collect());
        let what = format!("step, kernel of {kernel} us, answer of {} KiB", answer >> 10);
        show(&format!("{what}: here, us"), here);
        show(&format!("{what}: there, us"), there);
    }
    Ok(())
}

fn repeat(times: usize, mut work: impl FnMut() -> Result<()>) -> Result<Vec<Duration>> {
    (0..times)
        .map(|_| {
            let start = Instant::now();
            work().map(|()| start.elapsed())
        })
        .collect()
}

fn show(what: &str, mut values: Vec<f64>) {
    values.sort_by(f64::total_cmp);
    let at = |part: usize| values[(values.len() - 1) * part / 100];
    println!("{what}: median {:.1}, 10th to 90th percentile {:.1} to {:.1}", at(50), at(10), at(90));
}
