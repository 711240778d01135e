//! A server of the files of a site, the browsers that run it, and what `cpu` says of the same.

use super::{draft, json, tapml};
use serde_json::{Value, json as value};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tapml_testing::Browser;

/// How a server differs from any other.
#[derive(Clone, Copy, Default)]
pub struct Oddities {
    /// JavaScript in front of the module, where its worker runs it too.
    pub prelude: &'static str,
    /// The first one who asks for the first shard gets half of it.
    pub cuts: bool,
    /// This file of weights is sent up to its half and then no further, so long as nobody says `go`.
    pub stalls: Option<&'static str>,
}

/// A server of the files of a folder, beside the page that tests a site.
pub struct Files {
    pub url: String,
    /// What pages have posted.
    reports: Receiver<Value>,
    /// Lets a page go on.
    pub go: Sender<()>,
    /// The paths that were asked for.
    asked: Arc<Mutex<Vec<String>>>,
    /// Bytes of weights that were sent.
    sent: Arc<AtomicU64>,
}

/// What the threads of a server share.
struct Shared {
    folder: PathBuf,
    odd: Oddities,
    reports: Mutex<Sender<Value>>,
    go: Mutex<Receiver<()>>,
    asked: Arc<Mutex<Vec<String>>>,
    sent: Arc<AtomicU64>,
}

impl Files {
    pub fn serve(folder: &Path, odd: Oddities) -> Files {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let ((posted, reports), (go, gone)) = (channel(), channel());
        let (asked, sent) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
        let shared = Arc::new(Shared {
            folder: folder.to_path_buf(),
            odd,
            reports: Mutex::new(posted),
            go: Mutex::new(gone),
            asked: asked.clone(),
            sent: sent.clone(),
        });
        // It ends with the process of the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || drop(answer(stream, &shared)));
            }
        });
        Files { url, reports, go, asked, sent }
    }

    /// Opens a page that does these steps; see `site_steps.mjs`.
    pub fn open(&self, steps: &Value) -> Browser {
        let hash: String = steps.to_string().bytes().map(|b| format!("%{b:02x}")).collect();
        Browser::open(&format!("{}test.html#{hash}", self.url)).unwrap()
    }

    /// What a page posts next.
    pub fn report(&self) -> Value {
        let report = self.report_or_error();
        assert!(report.get("error").is_none(), "{report}");
        report
    }

    /// The same, which may be that it failed.
    pub fn report_or_error(&self) -> Value {
        self.reports.recv_timeout(Duration::from_secs(300)).expect("the page tells something")
    }

    /// The files of weights that were asked for, in order.
    pub fn weights(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        let weights = asked.iter().filter_map(|path| path.split_once("/weights/"));
        weights.map(|(_, file)| file.to_string()).collect()
    }

    /// How often a file was asked for.
    pub fn asked_for(&self, path: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| *asked == path).count()
    }

    /// Bytes of weights that were sent.
    pub fn weight_bytes(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// What is read of a request.
struct Asked {
    path: String,
    /// First byte that is wanted.
    from: Option<usize>,
    body: Vec<u8>,
}

impl Asked {
    fn read(stream: &TcpStream) -> std::io::Result<Asked> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let path = line.split(' ').nth(1).unwrap_or("/").to_string();
        let (mut length, mut from) = (0, None);
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let header = header.trim().to_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(found) = header.strip_prefix("content-length:") {
                length = found.trim().parse().unwrap();
            }
            if let Some(found) = header.strip_prefix("range:") {
                let found = found.trim().strip_prefix("bytes=").and_then(|range| range.strip_suffix('-'));
                from = Some(found.unwrap().parse().unwrap());
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        Ok(Asked { path, from, body })
    }
}

/// One request.
fn answer(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let Asked { path, from, body } = Asked::read(&stream)?;
    let first = !shared.asked.lock().unwrap().contains(&path);
    shared.asked.lock().unwrap().push(path.clone());
    let file = |name: &str| std::fs::read(shared.folder.join(name));
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
        "/test.js" => ("text/javascript", include_bytes!("../site.js").to_vec()),
        "/site_steps.mjs" => ("text/javascript", include_bytes!("../site_steps.mjs").to_vec()),
        "/tapml.js" => (
            "text/javascript",
            [format!("{{{}}}\n", shared.odd.prelude).into_bytes(), file("tapml.js")?].concat(),
        ),
        "/" => ("text/html", file("index.html")?),
        other => ("application/octet-stream", file(&other[1..])?),
    };
    let whole = bytes.len();
    let rest = &bytes[from.unwrap_or(0).min(whole)..];
    let stalls = shared.odd.stalls.is_some_and(|file| path.ends_with(file));
    let cut = first && ((shared.odd.cuts && path.ends_with("/weights/000.bin")) || stalls);
    let sent = if cut { rest.len() / 2 } else { rest.len() };
    let status = if from.is_some() { "206 Partial Content" } else { "200 OK" };
    write!(stream, "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n", rest.len())?;
    if let Some(from) = from {
        write!(stream, "Content-Range: bytes {from}-{}/{whole}\r\n", whole - 1)?;
    }
    write!(stream, "Connection: close\r\n\r\n")?;
    stream.write_all(&rest[..sent])?;
    if path.contains("/weights/") {
        shared.sent.fetch_add(sent as u64, Ordering::Relaxed);
    }
    if cut && stalls {
        stream.flush()?;
        shared.go.lock().unwrap().recv().ok();
    }
    Ok(())
}

/// The site of a model; gives its folder and the report.
pub fn compile(folder: &Path, model: &str, more: &[&str]) -> (PathBuf, Value) {
    compile_as(folder, model, "site", more)
}

/// The same under another name.
pub fn compile_as(folder: &Path, model: &str, name: &str, more: &[&str]) -> (PathBuf, Value) {
    let mut command = tapml(folder);
    command.args(["compile", model, "--target", "webgpu", "--out", name, "--overwrite"]).args(more);
    let report = json(&mut command, 0);
    (folder.join(name), report)
}

/// The program of a site or of a report that devices without f16 and wide subgroups run, which software adapters are.
pub fn of_any_device(site: &Value) -> &Value {
    site["programs"].as_array().unwrap().last().unwrap()
}

/// What `cpu` writes.
pub fn generate_on_cpu(folder: &Path, model: &str, prompt: &str, more: &[&str]) -> Value {
    let mut command = tapml(folder);
    json(command.args(["generate", model, "--prompt", prompt, "--target", "cpu"]).args(more), 0)
}

/// A copy of the small model with a chat template.
pub fn with_template(folder: &Path) -> String {
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

pub fn expect_same(written: &Value, expected: &Value) {
    assert_eq!(written["ids"], expected["ids"], "{written} {expected}");
    assert_eq!(written["text"], expected["text"]);
    assert_eq!(written["usage"]["completion_tokens"], expected["ids"].as_array().unwrap().len());
}

/// The driver of Chromium's software adapter, which Dawn takes as any other.
const SWIFTSHADER: &str = "/usr/lib/chromium/vk_swiftshader_icd.json";

/// Mesa's software driver.
const LLVMPIPE: &str = "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json";

/// Runs steps without a page.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/site.mjs");

/// What Dawn under Node posts for these steps; `None` and a counted skip without it.
pub fn run_node(files: &Files, site: &Path, steps: &Value) -> Option<Vec<Value>> {
    let packages = std::env::var_os("TAPML_DAWN").map(PathBuf::from);
    let Some(packages) = packages.filter(|folder| folder.join("node_modules/webgpu").is_dir()) else {
        tapml_testing::skip("dawn", "TAPML_DAWN names no folder with the npm package webgpu");
        return None;
    };
    if !Path::new(SWIFTSHADER).exists() {
        tapml_testing::skip("dawn", "Chromium's SwiftShader driver is not installed");
        return None;
    }
    let mut command = Command::new("node");
    command.arg(SCRIPT);
    command.env("TAPML_DAWN", std::path::absolute(packages).unwrap()).env("VK_ICD_FILENAMES", SWIFTSHADER);
    Some(run_script(command, files, site, steps))
}

/// What Deno posts for these steps on Mesa's software adapter; `None` and a counted skip without either. Its WebGPU is of another make (wgpu),
/// and this adapter has f16.
pub fn run_deno(files: &Files, site: &Path, steps: &Value) -> Option<Vec<Value>> {
    let packages = std::env::var_os("TAPML_DENO").map(PathBuf::from);
    let program = packages.map(|folder| folder.join("node_modules/.bin/deno"));
    let Some(program) = program.filter(|program| program.exists()) else {
        tapml_testing::skip("deno", "TAPML_DENO names no folder with the npm package deno");
        return None;
    };
    if !Path::new(LLVMPIPE).exists() {
        tapml_testing::skip("deno", "Mesa's software driver is not installed");
        return None;
    }
    let mut command = Command::new(std::path::absolute(program).unwrap());
    command.args(["run", "--allow-all", "--no-config", "--unstable-webgpu", SCRIPT]);
    let kept = site.parent().unwrap().join("deno");
    command.env("DENO_DIR", kept).env("VK_ICD_FILENAMES", LLVMPIPE);
    Some(run_script(command, files, site, steps))
}

/// Runs the script; gives what it posts.
fn run_script(mut command: Command, files: &Files, site: &Path, steps: &Value) -> Vec<Value> {
    let output = command.arg(site).arg(&files.url).arg(steps.to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"))
}

/// The SHA-256 of a file, by the system's own command.
pub fn sha256(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_string()
}

/// Enters a file of a site that was changed.
pub fn enter(site: &Path, entry: &mut Value) {
    let file = site.join(entry["file"].as_str().unwrap());
    entry["bytes"] = value!(std::fs::metadata(&file).unwrap().len());
    entry["sha256"] = value!(sha256(&file));
}

/// Reads a file of JSON.
pub fn read_json(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}
