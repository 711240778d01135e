//! What the machine does to agents: memory that ends, agents that are killed, networks that fall silent, and many sessions.
#![allow(clippy::unwrap_used)]

mod common;

use common::hubs;
use common::outer::{Outer, TOKEN, own_executable};
use common::{Running, children, count, processes_after, quick, record_kernels};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tapml_device::{Device, ErrorKind, Symbols};
use tapml_rpc::agent::Config;
use tapml_rpc::{Address, RemoteDevice};

#[test]
fn session_process() {
    common::session_process();
}

#[test]
fn outer_agent() {
    common::outer::outer_agent();
}

/// A session whose process eats all memory that it is given, and one after it.
fn starves(agent: &Running, expected: &str) {
    let mut device = agent.open("trap", "");
    let error = count(&mut device, &["eat"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(error.detail("kernel"), Some("eat"), "{error}");
    assert_eq!(count(&mut agent.open("emulator", ""), &["fine"]).unwrap(), 1);
}

#[test]
fn a_process_that_may_not_have_more_memory_says_so() {
    if !cfg!(target_os = "linux") {
        return tapml_testing::skip("linux", "other systems have no limit of this kind");
    }
    let agent = Running::start(Config::default(), processes_after("ulimit -v 3000000"));
    starves(&agent, "ran out of memory");
    // A buffer that cannot be had is an error of that call alone.
    let mut device = agent.open("emulator", "");
    let large: Vec<_> = (0..4).map(|_| device.create_buffer("large", 1 << 30).unwrap()).collect();
    assert_eq!(device.wait().unwrap_err().kind(), ErrorKind::OutOfMemory);
    large.into_iter().for_each(|buffer| device.destroy_buffer(buffer).unwrap());
    assert_eq!(count(&mut device, &["fine"]).unwrap(), 1);
}

/// A control group with a limit of memory, which the kernel enforces by its out-of-memory killer.
struct Group(PathBuf);

impl Group {
    fn new(bytes: u64) -> Option<Group> {
        let name = format!("tapml-{}", std::process::id());
        let limits = [("memory", "memory.limit_in_bytes"), (".", "memory.max")];
        limits.iter().find_map(|(root, limit)| {
            let group = Path::new("/sys/fs/cgroup").join(root).join(&name);
            std::fs::create_dir(&group).ok()?;
            let group = Group(group);
            std::fs::write(group.0.join(limit), bytes.to_string()).ok()?;
            // A limit that no process can be put under is none.
            group.0.join("cgroup.procs").is_file().then_some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn the_kernels_out_of_memory_killer_ends_a_session_only() {
    let Some(group) = Group::new(400 << 20) else {
        return tapml_testing::skip("cgroup", "no control group with a limit of memory can be made here");
    };
    let enter = format!("echo $$ > {}/cgroup.procs", group.0.display());
    let agent = Running::start(Config::default(), processes_after(&enter));
    starves(&agent, "killed (signal 9): by hand, or because memory ran out");
}

/// Whether a process runs. One that has ended and that nobody has asked about does not.
fn runs(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with(['Z', 'X'])) && !stat.is_empty()
}

#[test]
fn an_agent_killed_in_the_middle_of_anything_leaves_no_process_behind() {
    for moment in ["upload", "launch", "read"] {
        let Some(mut agent) = Outer::start("processes", &[]) else { return };
        let mut device = agent.open("trap");
        let size = 64 << 20;
        let big = device.create_buffer("big", size as u64).unwrap();
        let (_, list) = record_kernels(&mut device, &["hang"]).unwrap();
        device.wait().unwrap();
        let session = agent.sessions(1, Duration::ZERO);
        let killer = |process: &mut std::process::Child| {
            process.kill().unwrap();
            process.wait().unwrap();
        };
        let error = match moment {
            "upload" => {
                device.write(big, 4, &vec![4; size / 2]).unwrap();
                killer(&mut agent.process);
                device.write(big, 4, &vec![4; size / 2]).and_then(|()| device.wait())
            }
            "launch" => {
                device.replay(list, &Symbols::new()).unwrap();
                std::thread::sleep(Duration::from_millis(100));
                killer(&mut agent.process);
                device.wait()
            }
            _ => std::thread::scope(|scope| {
                let device = &mut device;
                let mut out = vec![0; size];
                let read = scope.spawn(move || device.read(big, 0, &mut out).and_then(|()| device.wait()));
                std::thread::sleep(Duration::from_millis(5));
                killer(&mut agent.process);
                read.join().unwrap()
            }),
        };
        assert_eq!(error.unwrap_err().kind(), ErrorKind::DeviceLost, "{moment}");
        let until = Instant::now() + Duration::from_secs(20);
        while session.iter().any(|&id| runs(id)) {
            assert!(Instant::now() < until, "{moment}: the session's process outlives its agent");
            std::thread::sleep(Duration::from_millis(50));
        }
        let next = Outer::start("processes", &[]).unwrap();
        assert_eq!(count(&mut next.open("emulator"), &["fine"]).unwrap(), 1, "{moment}");
    }
}

/// Memory in KiB, open files and threads of a process.
fn footprint(id: u32) -> (u64, usize, u64) {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let number = |name: &str| {
        let line = status.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let files = std::fs::read_dir(format!("/proc/{id}/fd")).unwrap().count();
    (number("VmRSS"), files, number("Threads"))
}

#[test]
fn sessions_leave_no_memory_files_or_processes_behind() {
    for (how, sessions) in [("threads", 1000), ("processes", 60)] {
        let Some(agent) = Outer::start(how, &[]) else { return };
        let id = agent.process.id();
        let session = |i: u32| {
            let mut device = agent.open("emulator");
            if i.is_multiple_of(20) {
                assert_eq!(count(&mut device, &["fine"]).unwrap(), 1)
            } else {
                device.wait().unwrap()
            }
        };
        (0..sessions / 5).for_each(session);
        // The last sessions are on their way out for a moment.
        let settled = || {
            agent.sessions(0, Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(300));
            footprint(id)
        };
        let before = settled();
        (0..sessions).for_each(session);
        let after = settled();
        let text = format!("{how}: {before:?} before, {after:?} after (KiB, files, threads)");
        eprintln!("{text}");
        assert!(after.0 < before.0 + (8 << 10), "{text}");
        assert!(after.1 <= before.1 + 2 && after.2 <= before.2 + 2, "{text}");
        assert_eq!(children(id), Vec::<u32>::new(), "{text}");
    }
}

#[test]
fn fifty_sessions_work_at_once() {
    let agent = Running::processes(Config { sessions: 50, ..quick(Duration::from_secs(120)) });
    let all_open = std::sync::Barrier::new(50);
    std::thread::scope(|scope| {
        for start in 0..50u32 {
            let (agent, all_open) = (&agent, &all_open);
            scope.spawn(move || {
                let mut device = agent.open("emulator", "");
                all_open.wait();
                let (buffer, list) = record_kernels(&mut device, &["add", "add again"]).unwrap();
                device.write(buffer, 0, &start.to_le_bytes().repeat(4)).unwrap();
                device.replay(list, &Symbols::new()).unwrap();
                let mut out = [0; 16];
                device.read(buffer, 0, &mut out).unwrap();
                assert_eq!(out, *(start + 2).to_le_bytes().repeat(4));
                all_open.wait();
            });
        }
    });
}

/// Two network namespaces with a cable between them: `left` and `right`.
struct Cable {
    names: [String; 2],
}

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip").args(arguments).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

impl Cable {
    /// With a name of its own, and a network `10.213.N.0`.
    fn new(name: &str, net: u8) -> Option<Cable> {
        let names = ["l", "r"].map(|side| format!("tapml-{}-{name}{side}", std::process::id()));
        let (cable, ends) = (Cable { names }, [1, 2].map(|end| format!("10.213.{net}.{end}/30")));
        let [left, right] = &cable.names;
        let made = ip(&["netns", "add", left])
            && ip(&["netns", "add", right])
            && ip(&["-n", left, "link", "add", "v0", "type", "veth", "peer", "name", "v0", "netns", right])
            && ip(&["-n", left, "addr", "add", &ends[0], "dev", "v0"])
            && ip(&["-n", right, "addr", "add", &ends[1], "dev", "v0"])
            && cable.set(0, "up")
            && cable.set(1, "up");
        made.then_some(cable)
    }

    /// One end of the cable `up` or `down`: the other end hears nothing any more, and nothing tells it why.
    fn set(&self, end: usize, how: &str) -> bool {
        ip(&["-n", &self.names[end], "link", "set", "v0", how])
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&["netns", "del", name]);
        }
    }
}

/// The body of the client at the other end of the cable: says what happens, and goes on when told to.
#[test]
fn network_client() {
    let Ok(port) = std::env::var("TAPML_TEST_CLIENT") else { return };
    let options = [("insecure", "on"), ("answer-within", "2")].map(|(n, v)| (n.to_string(), v.to_string()));
    let address = Address::parse(&format!("ws://10.213.77.1:{port}/emulator"), &options).unwrap();
    let go_on = || drop(std::io::stdin().lines().next());
    for _ in 0..2 {
        let mut device = RemoteDevice::open(&address).unwrap();
        assert_eq!(count(&mut device, &["fine"]).unwrap(), 1);
        eprintln!("client: works");
        go_on();
        let error = device.wait().unwrap_err();
        eprintln!("client: {:?}: {error}", error.kind());
        go_on();
    }
}

/// Stops or continues a process.
fn signal(id: u32, which: &str) {
    assert!(Command::new("kill").args([which, &id.to_string()]).status().unwrap().success());
}

/// Suspends a process, and returns when none of its threads runs any more: `kill` returns before.
fn suspend(id: u32) {
    signal(id, "-STOP");
    let is_running = |thread: &std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which stands in parentheses and may hold any character.
        text.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['T', 't', 'Z', 'X']))
    };
    let threads = PathBuf::from(format!("/proc/{id}/task"));
    let deadline = Instant::now() + Duration::from_secs(10);
    while std::fs::read_dir(&threads).is_ok_and(|mut all| all.any(|t| is_running(&t.unwrap()))) {
        assert!(Instant::now() < deadline, "process {id} was told to stop and runs on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The body of a client that is suspended: says when each run of four slow kernels begins, and what it gave.
#[test]
fn sleepy_client() {
    let Ok(word) = std::env::var("TAPML_TEST_SLEEPY") else { return };
    let (word, more) = word.split_once('?').unwrap_or((&word, ""));
    let mut options = vec![("insecure".to_string(), "on".to_string())];
    options.extend(more.split_once('=').map(|(name, value)| (name.into(), value.into())));
    eprintln!("client: begins");
    let mut device = RemoteDevice::open(&Address::parse(word, &options).unwrap()).unwrap();
    for _ in 0..2 {
        eprintln!("client: waits");
        let done = count(&mut device, &["slow"; 4]);
        eprintln!("client: {done:?}");
    }
}

/// A client at this address, and what it says.
fn sleepy(word: &str, within: &[&str]) -> (std::process::Child, impl FnMut() -> String + use<>) {
    let mut command = own_executable("sleepy_client", within);
    command.env("TAPML_TEST_SLEEPY", word).env("TAPML_TOKEN", TOKEN);
    let mut client = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(client.stderr.take().unwrap()).lines();
    let mut says = move || lines.find_map(|l| l.unwrap().strip_prefix("client: ").map(str::to_string));
    (client, move || says().unwrap_or_default())
}

#[test]
fn a_client_that_was_suspended_goes_on_when_it_wakes() {
    let Some(agent) = Outer::start("processes", &[]) else { return };
    let (mut client, mut says) = sleepy(&format!("ws://{}/trap?answer-within=2", agent.address), &[]);
    assert_eq!((says(), says()), ("begins".into(), "waits".into()));
    // In the middle of the wait, for longer than the agent may be silent and for longer than the work takes.
    std::thread::sleep(Duration::from_millis(1000));
    suspend(client.id());
    std::thread::sleep(Duration::from_secs(6));
    signal(client.id(), "-CONT");
    assert_eq!([says(), says(), says()], ["Ok(4)", "waits", "Ok(4)"]);
    assert!(client.wait().unwrap().success());
}

#[test]
fn a_laptop_that_slept_for_twenty_seconds_finds_its_session_again() {
    let Some(cable) = Cable::new("s", 78) else {
        return tapml_testing::skip("netns", "network namespaces need Linux, root and iproute2");
    };
    let [left, right] = &cable.names;
    let Some(agent) = Outer::start("network", &["ip", "netns", "exec", left]) else { return };
    let port = agent.address.rsplit(':').next().unwrap();
    let (mut client, mut says) =
        sleepy(&format!("ws://10.213.78.1:{port}/trap"), &["ip", "netns", "exec", right]);
    assert_eq!((says(), says()), ("begins".into(), "waits".into()));
    std::thread::sleep(Duration::from_millis(1000));
    // Neither the program nor its system answers while the lid is closed.
    suspend(client.id());
    assert!(cable.set(1, "down"));
    std::thread::sleep(Duration::from_secs(20));
    assert!(cable.set(1, "up"));
    signal(client.id(), "-CONT");
    assert_eq!([says(), says(), says()], ["Ok(4)", "waits", "Ok(4)"]);
    assert!(client.wait().unwrap().success());
}

#[test]
fn a_client_that_slept_in_a_hubs_queue_is_still_in_it() {
    if !cfg!(unix) {
        return tapml_testing::skip("unix", "processes are stopped by signals");
    }
    let (place, _hub) = hubs::hub(tapml_rpc::hub::Config::default());
    let _agent = hubs::single(place);
    hubs::wait_for_devices(place, 1);
    let first = hubs::open(place, "lab/emulator").unwrap();
    let (mut client, mut says) = sleepy(&format!("hub/lab/emulator?hub=ws://{place}"), &[]);
    assert_eq!(says(), "begins");
    std::thread::sleep(Duration::from_secs(1));
    suspend(client.id());
    std::thread::sleep(Duration::from_secs(22));
    signal(client.id(), "-CONT");
    drop(first);
    assert_eq!([says(), says()], ["waits", "Ok(4)"]);
    assert_eq!([says(), says()], ["waits", "Ok(4)"]);
    assert!(client.wait().unwrap().success());
}

#[test]
fn a_client_that_gives_its_agent_up_leaves_it_no_session() {
    let Some(agent) = Outer::start("processes", &[]) else { return };
    let options = [("answer-within".to_string(), "2".to_string())];
    let address = Address::parse(&format!("ws://{}/emulator", agent.address), &options).unwrap();
    let mut device = RemoteDevice::open(&address).unwrap();
    suspend(agent.process.id());
    let lost = device.wait().unwrap_err();
    signal(agent.process.id(), "-CONT");
    assert!(lost.to_string().contains("no sign of life"), "{lost}");
    // The program goes on, and holds on to the device that it has lost.
    assert_eq!(agent.sessions(0, Duration::from_secs(20)), Vec::<u32>::new());
    drop(device);
}

#[test]
fn a_network_that_falls_silent_is_noticed_at_both_ends() {
    let Some(cable) = Cable::new("f", 77) else {
        return tapml_testing::skip("netns", "network namespaces need Linux, root and iproute2");
    };
    let [left, right] = &cable.names;
    let Some(agent) = Outer::start("network", &["ip", "netns", "exec", left]) else { return };
    let port = agent.address.rsplit(':').next().unwrap();
    let mut command = own_executable("network_client", &["ip", "netns", "exec", right]);
    command.env("TAPML_TEST_CLIENT", port).env("TAPML_TOKEN", TOKEN);
    let mut client = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(client.stderr.take().unwrap()).lines();
    let mut says = || lines.find_map(|l| l.unwrap().strip_prefix("client: ").map(str::to_string)).unwrap();
    let mut input = client.stdin.take().unwrap();
    let mut go_on = || writeln!(input).unwrap();

    assert_eq!(says(), "works");
    assert!(cable.set(0, "down"));
    go_on();
    let lost = says();
    assert!(lost.starts_with("DeviceLost") && lost.contains("no sign of life"), "{lost}");
    assert!(cable.set(0, "up"));
    go_on();
    // The next session works. Its client vanishes without a word: the agent gives it up by itself.
    assert_eq!(says(), "works");
    assert!(cable.set(1, "down"));
    client.kill().unwrap();
    client.wait().unwrap();
    assert!(ip(&["netns", "del", right]));
    let left_over = agent.sessions(0, Duration::from_secs(60));
    assert_eq!(left_over, Vec::<u32>::new(), "sessions of a client that is gone");
}
