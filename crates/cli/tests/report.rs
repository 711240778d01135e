//! The HTML report in a real browser: it loads without a word on the console, shows what the JSON says, and needs no
//! network.
#![allow(clippy::unwrap_used)]

mod common;

use common::{draft, json, prompts, tapml};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// What Chromium makes of a page: its document after scripts ran, and its console's lines.
fn browse(page: &Path, profile: &Path) -> (String, Vec<String>) {
    let output = Command::new("/usr/bin/chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    let console = log.lines().filter(|l| l.contains("CONSOLE")).map(str::to_string).collect();
    (String::from_utf8(output.stdout).unwrap(), console)
}

/// The text of the element with this id, up to the next tag.
fn text_of<'a>(dom: &'a str, id: &str) -> &'a str {
    let start = dom.find(&format!("id=\"{id}\"")).unwrap_or_else(|| panic!("no element `{id}`"));
    let rest = &dom[start..];
    let open = rest.find('>').unwrap() + 1;
    rest[open..].split('<').next().unwrap().trim()
}

fn migrate(folder: &Path, extra: &[&str], code: i32) -> Value {
    let mut command = tapml(folder);
    command.args([
        "migrate",
        &draft(),
        "--target",
        "emulator",
        "--steps",
        "1",
        "--ledger",
        "l",
        "--html",
        "page.html",
    ]);
    json(command.args(extra).arg("--prompts").arg(prompts(folder)), code)
}

#[test]
fn the_page_shows_what_the_report_says() {
    if !Path::new("/usr/bin/chromium").exists() {
        tapml_testing::skip("chromium", "/usr/bin/chromium is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = common::kernel(folder.path(), "rope");
    let wrong =
        std::fs::read_to_string(&file).unwrap().replace("b * cosine + a * sine", "b * cosine - a * sine");
    std::fs::write(&file, wrong).unwrap();
    let bad_kernel = format!("rope={}", file.display());
    for (extra, code, verdict) in [(vec![], 0, "accepted"), (vec!["--kernel", &bad_kernel], 1, "rejected")] {
        let report = migrate(folder.path(), &extra, code);
        let (dom, console) = browse(&folder.path().join("page.html"), &folder.path().join("profile"));
        assert_eq!(console, Vec::<String>::new());
        assert_eq!(text_of(&dom, "verdict"), verdict);
        let ops = report["ops"].as_array().unwrap();
        let accepted = ops.iter().filter(|o| o["state"] == "accepted").count();
        assert_eq!(text_of(&dom, "accepted"), format!("{accepted} / {}", ops.len()));
        let coverage = &report["coverage"];
        assert_eq!(text_of(&dom, "checked"), format!("{} / {}", coverage["checked"], coverage["calls"]));
        for op in ops {
            let row = format!(
                "data-op=\"{}\" data-state=\"{}\"",
                op["op"].as_str().unwrap(),
                op["state"].as_str().unwrap()
            );
            assert_eq!(dom.matches(&row).count(), 1, "{row}");
        }
        // The page draws the graph that was carved, which does not choose the next token.
        let drawn = ops.iter().filter(|o| o["op"] != "argmax");
        let nodes: u64 = drawn.map(|o| o["nodes"].as_u64().unwrap()).sum();
        assert_eq!(dom.matches("class=\"node ").count() as u64, nodes);
        if verdict == "accepted" {
            assert_eq!(text_of(&dom, "nodes"), format!("{nodes} / {nodes}"));
            assert!(dom.contains("id=\"deployed\"") && dom.contains("argmax/"), "the deployed program");
        }
        assert!(!dom.contains("http://") && !dom.contains("https://"), "the page refers to the network");
    }
}
