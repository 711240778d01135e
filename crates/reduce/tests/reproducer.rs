//! The reproducer's folder, its program for wgpu and its page: all say FAIL for the wrong kernel and PASS for the right one.
#![allow(clippy::unwrap_used)]

mod common;
#[allow(dead_code, reason = "its `main` is for the program of its own that it is in a reproducer")]
#[path = "../src/reproducer/runner/main.rs"]
mod runner;

use common::{FAULTS, Fault, Suites};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use tapml_exec::{Call, CpuPlatform, Platform};
use tapml_graph::{DType, Dim, Op, Symbol, Symbols, Tensor, TensorType};
use tapml_migrate::verdict::{AMPLITUDE, COPIES};
use tapml_migrate::{Oracles, Stop};
use tapml_reduce::{Failure, ReduceOptions, Reduced, Reproducer, reduce};
use tapml_reference::{Value, oracle};

/// Kinds of kernels that differ in what they bind: one output, several launches, two outputs, indices, constants.
const CHOSEN: [&str; 6] = [
    "mean over one element too many",
    "new rows one row too late",
    "eps a hundred times too large",
    "odd ids take the row before",
    "wrong head mapping",
    "decay one percent off",
];

fn chosen_faults() -> impl Iterator<Item = &'static Fault> {
    CHOSEN.iter().map(|name| FAULTS.iter().find(|f| f.name == *name).unwrap())
}

fn reduce_fault(suites: &mut Suites, fault: &Fault) -> (String, Reduced) {
    let mut platform = fault.platform(&fault.text());
    let (id, call, recorded) = suites.first_failing(fault, &mut platform);
    let options = ReduceOptions { limit: Duration::from_secs(600), simplify: true };
    (id, reduce(call, &recorded, &mut platform, &Oracles::new(0), &options, &Stop::new()).unwrap().unwrap())
}

/// The reproducers of a fault, one with the wrong kernel and one with the right kernel in its place.
fn write_both(found: &Reduced, id: &str, fault: &Fault, folder: &Path) -> [std::path::PathBuf; 2] {
    [("wrong", fault.text()), ("right", fault.right())].map(|(name, text)| {
        let out = folder.join(format!("{}-{name}", fault.op));
        Reproducer::new(found, id, &fault.platform(&text)).unwrap().write(&out, false).unwrap();
        out
    })
}

#[test]
fn the_folder_holds_everything() {
    let (mut suites, folder) = (Suites::default(), tempfile::tempdir().unwrap());
    for fault in chosen_faults() {
        let (id, found) = reduce_fault(&mut suites, fault);
        let [out, _] = write_both(&found, &id, fault, folder.path());
        for file in ["case.json", "README.md", "index.html", "Cargo.toml", "src/main.rs", "kernels/0.wgsl"] {
            assert!(out.join(file).is_file(), "{}: {file}", fault.name);
        }
        let case: serde_json::Value =
            serde_json::from_slice(&std::fs::read(out.join("case.json")).unwrap()).unwrap();
        let wrong = case["kernels"]
            .as_array()
            .unwrap()
            .iter()
            .map(|k| std::fs::read_to_string(out.join(k["file"].as_str().unwrap())).unwrap());
        assert!(
            wrong.into_iter().any(|text| text.contains(fault.replace)),
            "{}: the kernel's text",
            fault.name
        );
        expected_is_exact(&out, &case, &found);
        let readme = std::fs::read_to_string(out.join("README.md")).unwrap();
        assert!(readme.contains(&id) && readme.contains("proven minimum"), "{readme}");
        let page = std::fs::read_to_string(out.join("index.html")).unwrap();
        assert!(!page.contains("/*CASE*/") && !page.contains("/*FILES*/"), "{}: the page's data", fault.name);
    }
}

/// The files of expected values hold what the oracle gives for the inputs in the files of inputs.
fn expected_is_exact(out: &Path, case: &serde_json::Value, found: &Reduced) {
    for (values, specimen) in case["values"]
        .as_array()
        .unwrap()
        .iter()
        .zip(std::iter::once(&found.smallest).chain(found.simplified.as_ref().map(|s| &s.specimen)))
    {
        let call = &specimen.call;
        for (tensor, given) in call.inputs.iter().zip(values["inputs"].as_array().unwrap()) {
            let bytes = std::fs::read(out.join(given["file"].as_str().unwrap())).unwrap();
            assert_eq!(bytes, **tensor.bytes());
        }
        let inputs: Vec<Value<f64>> = call.inputs.iter().map(|t| Value::from_tensor(t).unwrap()).collect();
        let exact =
            oracle(&call.op, &call.symbols, &inputs, &specimen.is_weight, AMPLITUDE, COPIES, 5).unwrap();
        for (exact, file) in exact.exact.iter().zip(values["expected"].as_array().unwrap()) {
            let bytes = std::fs::read(out.join(file["exact"].as_str().unwrap())).unwrap();
            let stored: Vec<f64> =
                bytes.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
            assert_eq!(stored, exact.values());
        }
    }
}

#[test]
fn an_existing_folder_is_not_replaced_unasked() {
    let (mut suites, folder) = (Suites::default(), tempfile::tempdir().unwrap());
    let fault = &FAULTS[0];
    let (id, found) = reduce_fault(&mut suites, fault);
    let reproducer = Reproducer::new(&found, &id, &fault.platform(&fault.text())).unwrap();
    let out = folder.path().join("bug");
    reproducer.write(&out, false).unwrap();
    assert!(reproducer.write(&out, false).is_err());
    reproducer.write(&out, true).unwrap();
    std::fs::remove_file(out.join("case.json")).unwrap();
    assert!(reproducer.write(&out, true).is_err(), "it is no reproducer any more");
}

/// The very file that a reproducer holds, on Vulkan.
#[test]
fn the_program_tells_wrong_from_right() {
    if let Err(e) = tapml_wgpu::adapters("vulkan") {
        return tapml_testing::skip("vulkan", &e.to_string());
    }
    let (mut suites, folder) = (Suites::default(), tempfile::tempdir().unwrap());
    for fault in chosen_faults() {
        let (id, found) = reduce_fault(&mut suites, fault);
        let sets = ["real", "simplified"].iter().take(1 + usize::from(found.simplified.is_some()));
        let [wrong, right] = write_both(&found, &id, fault, folder.path());
        for set in sets {
            let run = |out: &Path| {
                let args = ["0", "--values", set, "--folder", out.to_str().unwrap()];
                runner::run(args.into_iter().map(String::from)).unwrap()
            };
            assert!(!run(&wrong), "{} ({set}): the wrong kernel passes", fault.name);
            assert!(run(&right), "{} ({set}): the right kernel fails", fault.name);
        }
    }
    let error = runner::run(["--folder", "nowhere"].into_iter().map(String::from)).unwrap_err();
    assert!(error.contains("case.json"), "{error}");
}

#[test]
fn the_page_tells_wrong_from_right() {
    let Some(browser) = ["chromium", "chromium-headless-shell", "google-chrome"].into_iter().find(|b| {
        Command::new(b)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    }) else {
        return tapml_testing::skip("chromium", "no Chromium is installed");
    };
    let (mut suites, folder) = (Suites::default(), tempfile::tempdir().unwrap());
    for fault in chosen_faults().take(3) {
        let (id, found) = reduce_fault(&mut suites, fault);
        let pages = write_both(&found, &id, fault, folder.path());
        for (page, verdict) in pages.iter().zip(["FAIL", "PASS"]) {
            let text = show_page(browser, &page.join("index.html"), folder.path());
            let wanted = format!("data-verdict=\"{verdict}\"");
            assert!(text.contains(&wanted), "{}: expected {verdict} of {}", fault.name, page.display());
        }
    }
}

/// Shows the page in a frame and hands back its elements once its script is done.
const FRAME: &str = "<!doctype html><iframe src='index.html'></iframe><script>
const frame = document.querySelector('iframe');
const look = setInterval(() => {
  const page = frame.contentDocument?.documentElement;
  if (!page?.dataset.verdict) return;
  clearInterval(look);
  fetch('done', { method: 'POST', body: page.outerHTML });
}, 50);
</script>";

/// The page's elements after its script has run.
fn show_page(browser: &str, page: &Path, folder: &Path) -> String {
    let profile = tempfile::tempdir_in(folder).unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut browser = Command::new(browser)
        .args("--headless=new --no-sandbox --disable-quic --no-first-run --disable-sync".split(' '))
        .args("--disable-background-networking --disable-component-update".split(' '))
        .args("--enable-unsafe-webgpu --use-webgpu-adapter=swiftshader".split(' '))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("http://{}/", server.local_addr().unwrap()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let text = std::fs::read_to_string(page).unwrap();
    let (sender, done) = mpsc::channel();
    std::thread::spawn(move || {
        // The browser opens spare connections, so each is served for itself.
        for connection in server.incoming().map_while(Result::ok) {
            let (text, sender) = (text.clone(), sender.clone());
            std::thread::spawn(move || serve(connection, &text, &sender));
        }
    });
    let elements = done.recv_timeout(Duration::from_secs(120));
    browser.kill().unwrap();
    browser.wait().unwrap();
    elements.unwrap_or_else(|_| "the page's script did not end".into())
}

fn serve(connection: TcpStream, page: &str, done: &mpsc::Sender<String>) {
    let mut reader = BufReader::new(&connection);
    let mut head = Vec::new();
    while let Some(Ok(line)) = reader.by_ref().lines().next() {
        if line.is_empty() {
            break;
        }
        head.push(line.to_lowercase());
    }
    let Some(request) = head.first() else { return };
    let length = head.iter().find_map(|l| l.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let answer = match request.split(' ').nth(1) {
        Some("/") => FRAME,
        Some("/index.html") => page,
        Some("/done") => return drop(done.send(String::from_utf8_lossy(&body).into_owned())),
        _ => "",
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close",
        answer.len()
    );
    let _ = write!(&connection, "{head}\r\n\r\n{answer}");
}

/// Kernels in `f16` need a line that each front end wants in its own way.
#[test]
fn halves_are_enabled() {
    let fault = &FAULTS[1];
    let mut suites = Suites::default();
    let (_, mut call, _) = suites.first_failing(fault, &mut fault.platform(&fault.text()));
    let x = &call.inputs[0];
    call.inputs[0] = Tensor::from_f64(DType::F16, x.shape().to_vec(), &x.to_f64()).unwrap();
    call.input_types[0].dtype = DType::F16;
    call.output_types = call.op.infer(&call.input_types).unwrap();
    let (mut platform, mut recorded) = (fault.platform(&fault.text()), Vec::new());
    CpuPlatform::new().replay(&[call.clone()], &mut |_, outputs| recorded = outputs.unwrap()).unwrap();
    let options = ReduceOptions { limit: Duration::from_secs(20), simplify: false };
    let found = reduce(call, &recorded, &mut platform, &Oracles::new(0), &options, &Stop::new())
        .unwrap()
        .expect("it fails");
    assert_eq!(found.smallest.elements(), 2);
    let folder = tempfile::tempdir().unwrap();
    let [wrong, right] = write_both(&found, "p0.s0.x", fault, folder.path());
    match tapml_wgpu::adapters("vulkan") {
        Ok(adapters) if adapters[0].features.f16 => {}
        _ => return tapml_testing::skip("vulkan", "no device with f16"),
    }
    let run = |out: &Path| {
        let args = ["0", "--folder", out.to_str().unwrap()];
        runner::run(args.into_iter().map(String::from)).unwrap()
    };
    assert!(!run(&wrong) && run(&right));
}

/// The program as its reader builds it. Building wgpu takes minutes, hence only on request.
#[test]
#[ignore = "builds wgpu from scratch; run it with --ignored"]
fn the_program_builds_and_runs_on_its_own() {
    let fault = &FAULTS[0];
    let (mut suites, folder) = (Suites::default(), tempfile::tempdir().unwrap());
    let (id, found) = reduce_fault(&mut suites, fault);
    for (out, code) in write_both(&found, &id, fault, folder.path()).iter().zip([1, 0]) {
        let mut cargo = Command::new("cargo");
        cargo
            .args(["run", "--quiet", "--", "0"])
            .current_dir(out)
            .env("CARGO_TARGET_DIR", folder.path().join("target"));
        assert_eq!(cargo.status().unwrap().code(), Some(code), "{}", out.display());
    }
}

/// A shift that no single element shows, because each may be off by as much, but all together do.
const SHIFT: [&str; 2] = ["formula(f32(x[at]))", "formula(f32(x[at])) + 4.5e-7"];

#[test]
fn a_fault_that_only_all_elements_show_is_told_by_their_sum() {
    let [find, replace] = SHIFT;
    let gelu = FAULTS.iter().find(|f| f.op == "gelu").unwrap();
    let fault = Fault { name: "shifted", find, replace, ..*gelu };
    let mut platform = fault.platform(&fault.text());
    // Values so alike that no choice of them exceeds what is allowed for one.
    let ty = TensorType::new(DType::F32, [Dim::symbol(Symbol::N), Dim::from(64u64)]);
    let values = (0..64 * 64).map(|i| 1.0 + 0.1 * (i as f32).sin()).collect();
    let call = Call {
        node: "shifted".into(),
        op: Op::parse("gelu", serde_json::json!({"approximate": "none"})).unwrap(),
        symbols: Symbols::np(64, 0),
        inputs: vec![Tensor::from_f32(vec![64, 64], values).unwrap()],
        input_types: vec![ty.clone()],
        weights: vec![None],
        output_types: vec![ty],
    };
    let mut recorded = Vec::new();
    let calls = [call.clone()];
    CpuPlatform::new().replay(&calls, &mut |_, outputs| recorded = outputs.unwrap()).unwrap();
    let options = ReduceOptions { limit: Duration::from_secs(5), simplify: false };
    let found = reduce(call, &recorded, &mut platform, &Oracles::new(0), &options, &Stop::new())
        .unwrap()
        .expect("a shift is seen");
    let Failure::Wrong(wrong) = &found.failure else { panic!("{:?}", found.failure) };
    assert!(wrong.judgement.element_ratio <= 1.0 && wrong.judgement.ratio > 1.0, "{:?}", wrong.judgement);
    let folder = tempfile::tempdir().unwrap();
    let [out, right] = write_both(&found, "p0.s0.x", &fault, folder.path());
    let case: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("case.json")).unwrap()).unwrap();
    assert_eq!(case["values"][0]["sums"][0]["criterion"], wrong.judgement.criterion.name());
    if tapml_wgpu::adapters("vulkan").is_err() {
        return tapml_testing::skip("vulkan", "the sums were not compared on a device");
    }
    let run = |out: &Path| {
        let args = ["0", "--folder", out.to_str().unwrap()];
        runner::run(args.into_iter().map(String::from)).unwrap()
    };
    assert!(!run(&out) && run(&right));
}
