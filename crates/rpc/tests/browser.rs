//! A browser tab as a device, as a client sees it: Chromium opens the page of a hub in this process.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tapml_device::{
    Binding, BindingKind, Command, Device, Error, ErrorKind, Extent, KernelDesc, Language, ListId, Source,
    conformance,
};
use tapml_graph::op::{Linear, Silu};
use tapml_graph::{Builder, DType, Dim, Symbol, Symbols, Tensor, TensorType};
use tapml_kernels::{CompileOptions, compile};
use tapml_rpc::agent::Stopper;
use tapml_rpc::hub::{Config, Hub};
use tapml_rpc::{Address, RemoteDevice, RemoteProgram, client};
use tapml_testing::Browser;

/// A hub with a tab that is known as `tab`.
struct Lab {
    hub: SocketAddr,
    stopper: Stopper,
    thread: Option<std::thread::JoinHandle<()>>,
    browser: Option<Browser>,
}

impl Lab {
    fn open() -> Option<Lab> {
        if !Browser::is_here() {
            return None;
        }
        let hub = Hub::bind("127.0.0.1:0", Config::default()).unwrap();
        let (address, stopper) = (hub.address(), hub.stopper());
        let thread = Some(std::thread::spawn(move || hub.serve().unwrap()));
        let mut lab = Lab { hub: address, stopper, thread, browser: None };
        lab.open_tab();
        Some(lab)
    }

    fn open_tab(&mut self) {
        self.browser = Some(Browser::open(&format!("http://{}/#name=tab", self.hub)).unwrap());
        self.wait_for_tab(true);
    }

    /// Waits until the hub knows a tab, or knows none.
    fn wait_for_tab(&self, there: bool) {
        let until = Instant::now() + Duration::from_secs(120);
        while client::devices(&self.address("", &[])).unwrap().is_empty() == there {
            assert!(Instant::now() < until, "there is a tab: {}", !there);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn address(&self, name: &str, options: &[(&str, &str)]) -> Address {
        let mut all: Vec<_> = options.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        all.push(("hub".into(), format!("ws://{}", self.hub)));
        Address::parse(&format!("hub/{name}"), &all).unwrap()
    }

    fn device(&self, options: &[(&str, &str)]) -> RemoteDevice {
        RemoteDevice::open(&self.address("webgpu", options)).unwrap()
    }

    /// The next session works.
    fn works(&self) {
        let mut device = self.device(&[]);
        let list = record(&mut device, "add", ADD).unwrap();
        device.replay(list.0, &Symbols::new()).unwrap();
        let mut word = [0; 4];
        device.read(list.1, 0, &mut word).unwrap();
        assert_eq!(u32::from_le_bytes(word), 1);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.browser = None;
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const ADD: &str = "x[0] += 1u;";
/// Some minutes on a software adapter.
const LONG: &str = "for (var i = 0u; i < 4000000000u; i++) { x[1] ^= i; }";
const ENDLESS: &str = "loop { if x[1] == 12345u { break; } x[2] += 1u; }";

/// A buffer, and a list that runs a kernel with this body on it once.
fn record(
    device: &mut RemoteDevice,
    name: &str,
    body: &str,
) -> Result<(ListId, tapml_device::BufferId), Error> {
    let head = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n";
    let text = format!(
        "{head}@compute @workgroup_size(64)\nfn main(@builtin(local_invocation_index) at: u32) {{\n    if at > 0u {{ return; }}\n    {body}\n}}\n"
    );
    let kernel = device.create_kernel(&KernelDesc {
        name: name.into(),
        source: Source {
            language: Language::Wgsl,
            file: format!("{name}.wgsl"),
            prelude: String::new(),
            text,
        },
        entry: "main".into(),
        constants: Vec::new(),
        bindings: vec![BindingKind::ReadWrite],
        workgroup: [64, 1, 1],
        workgroup_memory: 0,
        needs_f16: false,
        needs_subgroups: false,
        dependent_launch: false,
    })?;
    let buffer = device.create_buffer("words", 64)?;
    let groups = [(); 3].map(|()| Extent::from_dim(1u64));
    let bindings = vec![Binding::whole(buffer)];
    let list = device.record(&[Command::Dispatch { label: "layer 1".into(), kernel, bindings, groups }])?;
    Ok((list, buffer))
}

#[test]
fn a_tab_conforms_and_runs_whole_programs() {
    let Some(lab) = Lab::open() else { return };
    let offered = client::devices(&lab.address("", &[])).unwrap();
    let info = offered[0].1.as_ref().unwrap();
    assert_eq!(info.platform, "webgpu");
    assert!(info.driver.starts_with("Chromium "), "{}", info.driver);

    let mut failed = Vec::new();
    for rule in tapml_rpc::conformance::rules() {
        if let conformance::CaseOutcome::Failed(why) = rule.check(&lab.address("webgpu", &[])) {
            failed.push(format!("{}: {why}", rule.name));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    let report = conformance::run_all(&mut lab.device(&[])).unwrap();
    assert_eq!(report.counts().failed, 0, "{report}");
    let small = lab.device(&[("profile", "mobile")]);
    assert_eq!(small.info().limits, tapml_device::Limits::WEBGPU);
    drop(small);
    programs(&lab);
}

/// A program loaded by handle gives what the host computes; its weight is sent once.
fn programs(lab: &Lab) {
    const WIDTH: usize = 300;
    let mut b = Builder::new("toy");
    let rows = vec![Dim::symbol(Symbol::N), Dim::from(WIDTH)];
    let x = b.input("x", TensorType { dtype: DType::F32, shape: rows }).unwrap();
    let shape = vec![Dim::from(WIDTH), Dim::from(WIDTH)];
    let w = b.weight("w", TensorType { dtype: DType::F32, shape }).unwrap();
    let linear = b.node("linear", Linear::default(), &[x, w]).unwrap();
    let y = b.node("y", Silu {}, &[linear]).unwrap();
    b.output("y", y);
    let graph = b.finish().unwrap();
    let values =
        |count: usize| (0..count).map(|i| ((i * 37) % 101) as f32 / 101.0 - 0.5).collect::<Vec<f32>>();
    let weight = |_: &str| Tensor::from_f32(vec![WIDTH, WIDTH], values(WIDTH * WIDTH));
    for round in 0..2 {
        let mut device = lab.device(&[]);
        let program = compile(&graph, device.info(), &CompileOptions::new(Symbols::np(5, 0))).unwrap();
        let mut there = RemoteProgram::load(&mut device, &program, &weight).unwrap();
        let (sent, held) = device.saved_bytes();
        assert_eq!(if round == 0 { held } else { sent }, 0, "round {round}: {sent} sent, {held} held");
        for rows in [1, 5] {
            let x = values(rows * WIDTH);
            let input = Tensor::from_f32(vec![rows, WIDTH], x.clone()).unwrap();
            let found = there.run(&mut device, &Symbols::np(rows as u64, 0), &[("x", &input)]).unwrap();
            let found = found[0].1.to_f32();
            let w = values(WIDTH * WIDTH);
            for (at, found) in found.iter().enumerate() {
                let (row, out) = (at / WIDTH, at % WIDTH);
                let sum: f64 =
                    (0..WIDTH).map(|k| f64::from(x[row * WIDTH + k]) * f64::from(w[out * WIDTH + k])).sum();
                let expected = sum / (1.0 + (-sum).exp());
                assert!((f64::from(*found) - expected).abs() < 1e-4, "{at}: {found}, expected {expected}");
            }
        }
    }
}

#[test]
fn what_goes_wrong_in_a_tab_is_told_and_the_next_session_works() {
    let Some(mut lab) = Lab::open() else { return };

    // Browsers refuse barriers that not all invocations reach: kernel, file, line, and the session goes on.
    let mut device = lab.device(&[]);
    let refused = record(&mut device, "divergent", "workgroupBarrier();").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Compile, "{refused}");
    assert_eq!(
        (refused.detail("kernel"), refused.detail("line")),
        (Some("divergent"), Some("5")),
        "{refused}"
    );
    assert!(refused.to_string().contains("divergent.wgsl:5:"), "{refused}");
    assert_eq!(refused.detail("source"), Some("workgroupBarrier();"));
    device.wait().unwrap();
    drop(device);

    // A kernel that never ends.
    let mut device = lab.device(&[("deadline", "2")]);
    let (list, buffer) = record(&mut device, "endless", ENDLESS).unwrap();
    device.replay(list, &Symbols::new()).unwrap();
    let lost = device.read(buffer, 0, &mut [0; 4]).unwrap_err();
    assert_eq!((lost.kind(), lost.detail("kernel")), (ErrorKind::DeviceLost, Some("endless")), "{lost}");
    assert!(lost.to_string().contains("did not finish within 2"), "{lost}");
    assert!(lost.detail("recent").unwrap().contains("`layer 1` by kernel `endless` on [words]"), "{lost}");
    drop(device);
    lab.works();

    // The GPU's process crashes: the browser takes the device away, and gives another.
    let lost = interrupt(&lab, |lab| assert!(lab.browser.as_ref().unwrap().kill_gpu_process()));
    assert!(lost.to_string().contains("the browser's device was lost"), "{lost}");
    assert_eq!(lost.detail("kernel"), Some("long"), "{lost}");
    lab.works();

    // The tab is closed.
    let mut tab = lab.browser.take();
    let lost = interrupt(&lab, |_| tab = None);
    assert!(lost.detail("recent").unwrap().contains("replay list"), "{lost}");
    lab.wait_for_tab(false);
    lab.open_tab();
    lab.works();
}

/// Runs a long kernel, and gives the error of the read that waits for it while `fault` happens.
fn interrupt(lab: &Lab, fault: impl FnOnce(&Lab)) -> Error {
    let mut device = lab.device(&[]);
    let (list, buffer) = record(&mut device, "long", LONG).unwrap();
    device.replay(list, &Symbols::new()).unwrap();
    let reading = std::thread::spawn(move || device.read(buffer, 0, &mut [0; 4]).unwrap_err());
    std::thread::sleep(Duration::from_secs(1));
    fault(lab);
    let lost = reading.join().unwrap();
    assert_eq!(lost.kind(), ErrorKind::DeviceLost, "{lost}");
    lost
}
