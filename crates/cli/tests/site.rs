//! Sites of `tapml compile --out`: what a browser writes by a site is what `cpu` writes. A real headless Chromium on its software
//! adapter runs them, and Dawn under Node.
#![allow(clippy::unwrap_used)]

mod common;

use common::{draft, json, stderr, tapml};
use serde_json::{Value, json as value};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tapml_testing::Browser;

/// A server of the files of a folder, beside the page that tests a site.
struct Files {
    url: String,
    /// What pages have posted.
    reports: Receiver<Value>,
    /// Lets a page go on.
    go: Sender<()>,
    /// The paths that were asked for.
    asked: Arc<Mutex<Vec<String>>>,
}

/// What the threads of a server share.
struct Shared {
    folder: PathBuf,
    reports: Mutex<Sender<Value>>,
    go: Mutex<Receiver<()>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Files {
    fn serve(folder: &Path) -> Files {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let ((posted, reports), (go, gone)) = (channel(), channel());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::new(Shared {
            folder: folder.to_path_buf(),
            reports: Mutex::new(posted),
            go: Mutex::new(gone),
            asked: asked.clone(),
        });
        // It ends with the process of the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || drop(answer(stream, &shared)));
            }
        });
        Files { url, reports, go, asked }
    }

    /// What a page posts next.
    fn report(&self) -> Value {
        let report = self.reports.recv_timeout(Duration::from_secs(300)).expect("the page tells something");
        assert!(report.get("error").is_none(), "{report}");
        report
    }

    /// How often weights were asked for.
    fn weights(&self) -> usize {
        self.asked.lock().unwrap().iter().filter(|path| path.starts_with("/weights/")).count()
    }
}

/// One request. The first one for a shard gets half of it.
fn answer(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or("/").to_string();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(found) = header.to_lowercase().strip_prefix("content-length:") {
            length = found.trim().parse().unwrap();
        }
    }
    let first = !shared.asked.lock().unwrap().contains(&path);
    shared.asked.lock().unwrap().push(path.clone());
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let (kind, bytes) = match path.as_str() {
        "/report" => {
            shared.reports.lock().unwrap().send(serde_json::from_slice(&body)?).ok();
            ("text/plain", Vec::new())
        }
        "/next" => {
            shared.go.lock().unwrap().recv().ok();
            ("text/plain", Vec::new())
        }
        "/test.html" => ("text/html", b"<!doctype html><script type=module src=test.js></script>".to_vec()),
        "/test.js" => ("text/javascript", include_bytes!("site.js").to_vec()),
        "/" => ("text/html", std::fs::read(shared.folder.join("index.html"))?),
        other => {
            let kind = if other.ends_with(".js") { "text/javascript" } else { "application/octet-stream" };
            (kind, std::fs::read(shared.folder.join(&other[1..]))?)
        }
    };
    let sent = if first && path == "/weights/000.bin" { bytes.len() / 2 } else { bytes.len() };
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n", bytes.len())?;
    write!(stream, "Connection: close\r\n\r\n")?;
    stream.write_all(&bytes[..sent])
}

/// The site of a model; gives its folder and the report.
fn compile(folder: &Path, model: &str, more: &[&str]) -> (PathBuf, Value) {
    let mut command = tapml(folder);
    command.args(["compile", model, "--target", "webgpu", "--out", "site", "--overwrite"]).args(more);
    let report = json(&mut command, 0);
    (folder.join("site"), report)
}

/// What `cpu` writes.
fn generate_on_cpu(folder: &Path, model: &str, prompt: &str, more: &[&str]) -> Value {
    let mut command = tapml(folder);
    json(command.args(["generate", model, "--prompt", prompt, "--target", "cpu"]).args(more), 0)
}

/// A copy of the small model with a chat template.
fn with_template(folder: &Path) -> String {
    let copy = folder.join("chatty");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(draft()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    let template = "{% for m in messages %}\n{{ bos_token }}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}\n\
                    {% if add_generation_prompt %}assistant:{% endif %}";
    std::fs::write(copy.join("chat_template.jinja"), template).unwrap();
    copy.display().to_string()
}

fn expect_same(written: &Value, expected: &Value) {
    assert_eq!(written["ids"], expected["ids"], "{written} {expected}");
    assert_eq!(written["text"], expected["text"]);
    assert_eq!(written["usage"]["completion_tokens"], expected["ids"].as_array().unwrap().len());
}

#[test]
fn a_site_is_whole_and_says_what_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (site, report) = compile(folder.path(), &draft(), &[]);
    let manifest: Value = serde_json::from_slice(&std::fs::read(site.join("site.json")).unwrap()).unwrap();
    // The rows are those of the lowered graph. A site computes the logits of the last row alone, as `generate` does.
    let target = "emulator?profile=mobile";
    let inspect = ["inspect", &draft(), "--lowered", "--target", target];
    let lowered = tapml(folder.path()).args(inspect).assert().success().get_output().stdout.clone();
    let lowered = String::from_utf8(lowered).unwrap();
    let program = &manifest["programs"][1];
    assert_eq!((&program["f16"], &program["activation"]), (&value!(false), &value!("f32")));
    for row in program["rows"].as_array().unwrap() {
        assert!(row == "last_row/portable" || lowered.contains(row.as_str().unwrap()), "{row}: {lowered}");
    }
    let programs: Vec<&Value> = report["programs"].as_array().unwrap().iter().collect();
    assert_eq!(manifest["programs"], value!(programs));
    // Every weight that a program binds is in the shards, at its place.
    let shards = manifest["weights"]["shards"].as_array().unwrap().iter();
    let all: Vec<u8> =
        shards.flat_map(|s| std::fs::read(site.join(s["file"].as_str().unwrap())).unwrap()).collect();
    assert_eq!(manifest["weights"]["bytes"], all.len());
    let tensors = manifest["weights"]["tensors"].as_array().unwrap();
    let end = tensors.iter().map(|t| t["at"].as_u64().unwrap() + t["len"].as_u64().unwrap()).max();
    assert!(end.unwrap().next_multiple_of(4) == all.len() as u64 && !tensors.is_empty());

    // What is there is not lost by a mistake, and nothing is written of what cannot be.
    let again = ["compile", &draft(), "--target", "webgpu", "--out", "site"];
    assert!(stderr(tapml(folder.path()).args(again), 2).contains("exists already"));
    let cuda = ["compile", &draft(), "--target", "cuda", "--out", "other"];
    assert!(stderr(tapml(folder.path()).args(cuda), 2).contains("targets: webgpu, mobile-webgpu"));
    let nothing = ["compile", "no-such-model", "--target", "webgpu", "--out", "nothing"];
    assert!(stderr(tapml(folder.path()).args(nothing), 2).contains("no such file or folder"));
    assert!(!folder.path().join("nothing").exists());
    assert!(!folder.path().join("other").exists());
}

/// The driver of Chromium's software adapter, which Dawn takes as any other.
const SWIFTSHADER: &str = "/usr/lib/chromium/vk_swiftshader_icd.json";

/// What Dawn under Node writes; `None` and a counted skip without it.
fn run_node(files: &Files, site: &Path, wishes: &Value) -> Option<Value> {
    let packages = std::env::var_os("TAPML_DAWN").map(PathBuf::from);
    let Some(packages) = packages.filter(|folder| folder.join("node_modules/webgpu").is_dir()) else {
        tapml_testing::skip("dawn", "TAPML_DAWN names no folder with the npm package webgpu");
        return None;
    };
    if !Path::new(SWIFTSHADER).exists() {
        tapml_testing::skip("dawn", "Chromium's SwiftShader driver is not installed");
        return None;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/site.mjs");
    let mut command = Command::new("node");
    command.arg(script).arg(site).arg(&files.url).arg(wishes.to_string());
    command.env("TAPML_DAWN", std::path::absolute(packages).unwrap()).env("VK_ICD_FILENAMES", SWIFTSHADER);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    Some(serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}")))
}

#[test]
fn a_chat_is_what_the_template_makes_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let model = with_template(folder.path());
    let (site, _) = compile(folder.path(), &model, &["--quantize", "q4"]);
    let files = Files::serve(&site);
    let message = value!({"role": "user", "content": "  Tell me of the old man. "});
    let wish = value!({"messages": [message], "max_tokens": 16});
    let Some(ran) = run_node(&files, &site, &value!([wish])) else { return };
    let more = ["--max-tokens", "16", "--quantize", "q4"];
    expect_same(
        &ran["written"][0],
        &generate_on_cpu(folder.path(), &model, "  Tell me of the old man. ", &more),
    );
    assert_eq!(ran["facts"]["chat"], true);
}

#[test]
fn a_browser_writes_what_cpu_writes_also_after_its_gpu_process_was_killed() {
    if !Browser::is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (site, report) = compile(folder.path(), &draft(), &[]);
    let files = Files::serve(&site);
    let wish = |count: u32| value!({"prompt": "Once upon a time", "max_tokens": count});
    let wishes = value!([wish(8), wish(24)]).to_string();
    let hash: String = wishes.bytes().map(|b| format!("%{b:02x}")).collect();
    let browser = Browser::open(&format!("{}test.html#{hash}", files.url)).unwrap();
    let facts = files.report()["facts"].clone();
    assert_eq!(facts["rows"], report["programs"][1]["rows"], "{facts}");
    assert_eq!(facts["kept"], "kept in files of this origin");
    // The first download of the shard was cut off.
    assert_eq!(files.weights(), 2);

    files.go.send(()).unwrap();
    expect_same(
        &files.report(),
        &generate_on_cpu(folder.path(), &draft(), "Once upon a time", &["--max-tokens", "8"]),
    );
    assert!(browser.kill_gpu_process());
    files.go.send(()).unwrap();
    let written = files.report();
    expect_same(
        &written,
        &generate_on_cpu(folder.path(), &draft(), "Once upon a time", &["--max-tokens", "24"]),
    );
    assert_eq!(written["reopened"], 1, "{written}");
    assert_eq!(files.weights(), 2, "the weights were kept");
}
