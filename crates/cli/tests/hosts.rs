//! Several hosts, each a network namespace: hubs that share a broker, agents that lose their hub, networks that fall silent.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Run, carve_small, changed_kernel, count_recorded};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn ip(arguments: &str) -> bool {
    let done = Command::new("ip").args(arguments.split_whitespace()).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

/// Hosts with addresses 10.77.0.1, 2, … on a bridge that is a namespace of its own: nothing of it touches this machine's
/// network.
struct Net {
    names: Vec<String>,
}

impl Net {
    fn new(test: &str, hosts: usize) -> Option<Net> {
        let name = |i: usize| format!("tapml-{}-{test}-{i}", std::process::id());
        let net = Net { names: (0..=hosts).map(name).collect() };
        let bridge = net.names[0].clone();
        let mut made = ip(&format!("netns add {bridge}"))
            && ip(&format!("-n {bridge} link add name br0 type bridge"))
            && ip(&format!("-n {bridge} link set br0 up"));
        for i in 1..=hosts {
            let host = &net.names[i];
            made = made
                && ip(&format!("netns add {host}"))
                && ip(&format!("-n {bridge} link add p{i} type veth peer name e netns {host}"))
                && ip(&format!("-n {bridge} link set p{i} master br0 up"))
                && ip(&format!("-n {host} addr add 10.77.0.{i}/24 dev e"))
                && ip(&format!("-n {host} link set e up"))
                && ip(&format!("-n {host} link set lo up"));
        }
        if !made {
            tapml_testing::skip("netns", "network namespaces need Linux, root and iproute2");
            return None;
        }
        Some(net)
    }

    /// The network of a host falls silent, without a word to anybody, or is there again.
    fn plug(&self, host: usize, state: &str) {
        assert!(ip(&format!("-n {} link set p{host} {state}", self.names[0])));
    }

    /// A program on a host.
    fn command(&self, host: usize, folder: &Path, program: &str, arguments: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host], program]).args(arguments.split_whitespace());
        command.current_dir(folder).env("TAPML_TOKEN", "a token for this test").env("TAPML_HUB", HUBS);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts a program on a host.
    fn start(&self, host: usize, folder: &Path, program: &str, arguments: &str) -> Process {
        let mut command = self.command(host, folder, program, arguments);
        Process(Some(command.spawn().unwrap()))
    }

    /// Starts a fleet's run on a host.
    fn run(&self, host: usize, folder: &Path, arguments: &str) -> Run {
        Run::start(self.command(host, folder, env!("CARGO_BIN_EXE_tapml"), arguments))
    }

    fn tapml(&self, host: usize, folder: &Path, arguments: &str) -> Process {
        self.start(host, folder, env!("CARGO_BIN_EXE_tapml"), arguments)
    }

    /// Runs a command on a host; its exit code and report.
    fn json(&self, host: usize, folder: &Path, arguments: &str) -> (i32, Value) {
        self.tapml(host, folder, &format!("{arguments} --json -")).report()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

/// `ip netns exec` becomes the program: killing it kills the program.
struct Process(Option<Child>);

impl Process {
    fn kill(mut self) {
        if let Some(child) = &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        self.0 = None;
    }

    fn report(mut self) -> (i32, Value) {
        let output = self.0.take().unwrap().wait_with_output().unwrap();
        let said = || String::from_utf8_lossy(&output.stderr).into_owned().into();
        let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| said());
        (output.status.code().unwrap_or(-1), report)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Hosts 1 and 2 are hubs where there are several.
const HUBS: &str = "ws://10.77.0.1:7071?insecure,ws://10.77.0.2:7071?insecure";

/// Waits until the devices that a host sees are as they shall be.
fn devices(net: &Net, host: usize, folder: &Path, wanted: impl Fn(&[Value]) -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let (_, listed) = net.json(host, folder, "device list hub");
        if listed["devices"].as_array().is_some_and(|all| wanted(all)) {
            return;
        }
        assert!(Instant::now() < until, "{listed}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until a host sees so many devices.
fn wait_for_devices(net: &Net, host: usize, folder: &Path, count: usize) {
    devices(net, host, folder, |all| all.len() == count);
}

fn token(folder: &Path) {
    tapml_testing::write_secret(&folder.join("token"), "a token for this test").unwrap();
}

const HUB: &str = "device hub --listen 0.0.0.0:7071 --token-file token --insecure";

#[test]
fn a_network_that_falls_silent_costs_its_session_only() {
    let Some(net) = Net::new("silent", 3) else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    token(folder);
    let _hub = net.tapml(1, folder, HUB);
    let _agent =
        net.tapml(2, folder, "device serve --hub ws://10.77.0.1:7071?insecure --name far --target emulator");
    wait_for_devices(&net, 3, folder, 1);
    let suite = carve_small(folder);
    let check = format!("check {} --target hub/far?answer-within=3", suite.display());
    let running = net.tapml(3, folder, &format!("{check}&reconnect=0"));
    devices(&net, 3, folder, |all| all[0]["hub"]["busy"] == 1);
    net.plug(2, "down");
    // It may have been done in time; else it is told that the device is lost.
    let (code, _) = running.report();
    assert!(code == 2 || code == 0, "{code}");
    let (code, _) = net.json(3, folder, &format!("{check}&wait=1"));
    assert_eq!(code, 2, "nobody answers for an agent that is cut off");
    net.plug(2, "up");
    let until = Instant::now() + Duration::from_secs(60);
    let report = loop {
        let (code, report) = net.json(3, folder, &check);
        if code == 0 {
            break report;
        }
        assert!(Instant::now() < until, "{code} {report}");
    };
    assert_eq!(report["failed"], 0, "{report}");
    // A network that comes back lets the check go on.
    let running = net.tapml(3, folder, &format!("{check} --json after.json"));
    devices(&net, 3, folder, |all| all[0]["hub"]["busy"] == 1);
    net.plug(2, "down");
    std::thread::sleep(Duration::from_secs(8));
    net.plug(2, "up");
    let (code, _) = running.report();
    assert_eq!(code, 0);
    let after = std::fs::read_to_string(folder.join("after.json")).unwrap();
    let after: serde_json::Value = serde_json::from_str(&after).unwrap();
    assert_eq!([&after["cases"], &after["failed"]], [&report["cases"], &report["failed"]], "{after}");
}

/// Hosts with a broker's program, or a counted skip.
fn with_broker(test: &str, hosts: usize) -> Option<Net> {
    if Command::new("nats-server").arg("--version").stdout(Stdio::null()).status().is_err() {
        tapml_testing::skip("nats-server", "it is not installed");
        return None;
    }
    Net::new(test, hosts)
}

/// The broker on a host, once it answers there.
fn broker(net: &Net, host: usize, folder: &Path) -> Process {
    let address = format!("10.77.0.{host}");
    let process = net.start(host, folder, "nats-server", &format!("-a {address} -p 4222 -js -sd nats"));
    let until = Instant::now() + Duration::from_secs(30);
    let asked = format!("exec 3<>/dev/tcp/{address}/4222");
    let answers = || ip_exec(net, host, &["bash", "-c", &asked]);
    while !answers() {
        assert!(Instant::now() < until, "the broker does not answer");
        std::thread::sleep(Duration::from_millis(50));
    }
    process
}

fn ip_exec(net: &Net, host: usize, command: &[&str]) -> bool {
    let mut ip = Command::new("ip");
    ip.args(["netns", "exec", &net.names[host]]).args(command).stderr(Stdio::null());
    ip.status().is_ok_and(|status| status.success())
}

/// How many cases the devices of a fleet's report had.
fn by_device(report: &Value) -> u64 {
    let columns = report["devices"].as_array().unwrap();
    let ops = columns.iter().flat_map(|column| column["ops"].as_array().unwrap());
    ops.map(|op| op["cases"].as_u64().unwrap()).sum()
}

#[test]
fn a_fleet_over_many_hosts_loses_nothing() {
    let Some(net) = with_broker("fleet", 4) else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    token(folder);
    let first = broker(&net, 4, folder);
    let hub = |host: usize| {
        let own = format!("{HUB} --broker nats://10.77.0.4:4222 --advertise ws://10.77.0.{host}:7071");
        net.tapml(host, folder, &own)
    };
    let agent = |host: usize, name: &str, hubs: &str| {
        net.tapml(host, folder, &format!("device serve --hub {hubs} --name {name} --target emulator"))
    };
    let (one, _two) = (hub(1), hub(2));
    let _a = agent(3, "a", HUBS);
    let b = agent(3, "b", "ws://10.77.0.2:7071?insecure");
    // Each hub tells of both, whichever has them.
    wait_for_devices(&net, 4, folder, 2);
    let suite = carve_small(folder);
    let fleet = format!(
        "check {} --target hub/emulator --fleet --broker nats://10.77.0.4:4222 --run r1",
        suite.display()
    );
    let mut run = net.run(4, folder, &fleet);
    run.wait_for(0.1);
    one.kill();
    run.wait_for(0.2);
    b.kill();
    first.kill();
    let _again = broker(&net, 4, folder);
    let _b = agent(3, "b", HUBS);
    let (code, report) = run.end();
    assert_eq!(code, 0, "{report}");
    let (_, local) = net.json(4, folder, &format!("check {} --target emulator", suite.display()));
    let local = count_recorded(&local);
    assert_eq!((&report["cases"], &report["failed"]), (&local.into(), &0.into()), "{report}");
    assert_eq!(by_device(&report), local, "none is counted twice: {report}");
    // The same command once more has nothing left to do, and the same to say.
    let (code, again) = net.json(4, folder, &fleet);
    assert_eq!((code, &again["cases"]), (0, &report["cases"]), "{again}");
}

#[test]
fn a_client_that_is_killed_is_gone_on_with() {
    let Some(net) = with_broker("client", 1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    token(folder);
    let _broker = broker(&net, 1, folder);
    let _hub = net.tapml(1, folder, HUB);
    let _agent =
        net.tapml(1, folder, "device serve --hub ws://10.77.0.1:7071?insecure --name a --target emulator");
    wait_for_devices(&net, 1, folder, 1);
    let suite = carve_small(folder);
    let (_, local) = net.json(1, folder, &format!("check {} --target emulator", suite.display()));
    let fleet = format!(
        "check {} --target hub/emulator --fleet --broker nats://10.77.0.1:4222 --run r1",
        suite.display()
    );
    let mut run = net.run(1, folder, &fleet);
    run.wait_for(0.2);
    run.kill();
    // What the killed one had in hand comes again.
    let (code, report) = net.json(1, folder, &fleet);
    assert_eq!((code, &report["failed"]), (0, &0.into()), "{report}");
    let local = count_recorded(&local);
    assert_eq!((&report["cases"], by_device(&report)), (&local.into(), local));
    assert_eq!(report["missing"].as_array().unwrap().len(), 0);
}

#[test]
fn a_run_is_of_one_check() {
    let Some(net) = with_broker("run", 1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let _broker = broker(&net, 1, folder);
    let suite = carve_small(folder);
    let check = |more: &str| {
        let run = "--fleet --broker nats://10.77.0.1:4222 --run r1";
        net.json(1, folder, &format!("check {} --op rms_norm {more} {run}", suite.display()))
    };
    let (code, first) = check("--target emulator");
    assert_eq!((code, &first["failed"]), (0, &0.into()), "{first}");
    // The same once more is told from what is kept.
    assert_eq!(check("--target emulator").1["cases"], first["cases"]);
    let wrong = changed_kernel(folder, "rms_norm", ["* factor *", "* 2.0 * factor *"]);
    for (more, differs) in [
        (
            format!("--target emulator --kernel {wrong}"),
            "kernels: expected none named, found rms_norm/portable",
        ),
        (
            "--target emulator --op add_rms_norm".into(),
            "operators: expected rms_norm, found add_rms_norm, rms_norm",
        ),
        (
            "--target emulator --case p0.s1.model.norm".into(),
            "cases: expected none named, found p0.s1.model.norm",
        ),
        ("--target emulator?check=all".into(), "targets: expected emulator, found emulator?check=all"),
    ] {
        let (code, said) = check(&more);
        let said = said.as_str().unwrap_or_else(|| panic!("{more}: {said}")).to_string();
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("the run `r1` is of another check") && said.contains(differs), "{said}");
        assert!(said.contains("choose another name with --run"), "{said}");
    }
    // Under a name of its own it is told what is wrong.
    let own = format!("check {} --op rms_norm --target emulator --kernel {wrong}", suite.display());
    let (code, found) =
        net.json(1, folder, &format!("{own} --fleet --broker nats://10.77.0.1:4222 --run r2"));
    assert!(code == 1 && found["failed"].as_u64() > Some(0), "{found}");
}

#[test]
fn a_device_with_other_kernels_is_told_of() {
    use ::tapml::kernels::{Choice, TuningCache};
    use ::tapml::migrate::suite::Suite;
    let Some(net) = with_broker("kernels", 1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let _broker = broker(&net, 1, folder);
    let suite = carve_small(folder);
    let spec = ::tapml::platform::PlatformSpec::parse("emulator").unwrap();
    let mut choices = TuningCache::new(::tapml::platform::open_device(&spec).unwrap().info());
    let check = |choices: &TuningCache| {
        std::fs::write(folder.join("chosen.json"), choices.text().unwrap()).unwrap();
        let fleet = "--fleet --broker nats://10.77.0.1:4222 --run r1 --target emulator?tuning=chosen.json";
        net.json(1, folder, &format!("check {} --op linear {fleet}", suite.display()))
    };
    let (code, first) = check(&choices);
    assert_eq!((code, &first["failed"]), (0, &0.into()), "{first}");
    assert_eq!(check(&choices).1["cases"], first["cases"]);
    let graph = Suite::open(&suite).unwrap().graph().clone();
    let linear = graph.nodes().iter().find(|node| node.op.name() == "linear").unwrap();
    choices.add(Choice::new(&linear.op, &graph.input_types(linear), "linear/subgroup", Vec::new()));
    let (code, said) = check(&choices);
    assert!(
        code == 2 && said.as_str().is_some_and(|s| s.contains("another kernel than it has now")),
        "{said}"
    );
}
