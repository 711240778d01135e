//! `xtask gpu` as a process: what it records of steps that pass, fail, hang or are stopped. A script stands in the place of
//! `tapml` and hands out captured reports; the last test runs the real one.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Hands out reports by the step's words; `hang` starts a process of its own and tells its id.
const SCRIPT: &str = r#"#!/bin/sh
for word; do report=$word; done
echo "$*" >> calls
case "$*" in
  --version) echo "tapml 9.9.9" ;;
  "device check absent"*) echo "error: no driver found" >&2; exit 2 ;;
  "device check"*) cp REPORTS/samples.json "$report" ;;
  "migrate models/llama"*) test -d "$(dirname "$report")" && cp REPORTS/migrate.json "$report" ;;
  "migrate wrong"*) cp REPORTS/rejected.json "$report"; exit 1 ;;
  "bench bugs"*) cp REPORTS/bugs.json "$report" ;;
  "bench decode"*) cp REPORTS/decode.json "$report" ;;
  hang*) sleep 600 & echo $! > sleeper; echo "about to hang"; wait ;;
  silent*) ;;
  odd*) echo '{"schema": 1}' > "$report" ;;
  crash*) kill -SEGV $$ ;;
  broken*) echo "error: out of device memory" >&2; exit 2 ;;
esac
"#;

const IDENTIFY: &str = r#"
[identify]
name = "conformance"
command = ["device", "check", "{target}"]
report = "device_check"
limit = 60
"#;

/// A project with a model, a stand-in for `tapml`, and a plan.
struct Project {
    folder: tempfile::TempDir,
}

impl Project {
    fn new(steps: &[(&str, &str, &str, u64)]) -> Project {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("tools/shapes")).unwrap();
        std::fs::create_dir_all(path("models/llama")).unwrap();
        std::fs::write(path("models/llama/config.json"), "{}").unwrap();
        let reports = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports");
        write_script(&path("tapml"), &SCRIPT.replace("REPORTS", reports.to_str().unwrap()));
        let mut plan = IDENTIFY.to_string();
        for (name, command, report, limit) in steps {
            let words: Vec<String> = command.split(' ').map(|word| format!("{word:?}")).collect();
            plan += &format!(
                "[[step]]\nname = {name:?}\ncommand = [{}]\nreport = {report:?}\nlimit = {limit}\n",
                words.join(", ")
            );
        }
        std::fs::write(path("plan.toml"), plan).unwrap();
        Project { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(["gpu", "--root"]).arg(self.folder.path()).arg("--tapml").arg(self.path("tapml"));
        command.arg("--plan").arg(self.path("plan.toml")).arg("--out").arg(self.path("out.json"));
        command
            .args(["--commit", "abc123"])
            .args(more)
            .env_remove("TAPML_MODELS")
            .env("TMPDIR", self.path(""));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if !more.contains(&"--target") {
            command.args(["--target", "cuda"]);
        }
        command
    }

    fn run(&self, more: &[&str], code: i32) -> (Value, String) {
        let output = self.command(more).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        (self.record(), text(&output))
    }

    /// The file as it is now, which must be whole.
    fn record(&self) -> Value {
        let Ok(text) = std::fs::read_to_string(self.path("out.json")) else { return Value::Null };
        serde_json::from_str(&text).unwrap()
    }

    /// How often the stand-in was called with words that begin so.
    fn calls(&self, words: &str) -> usize {
        let calls = std::fs::read_to_string(self.path("calls")).unwrap_or_default();
        calls.lines().filter(|line| line.starts_with(words)).count()
    }

    /// The id of the process that `hang` started, as soon as it is there.
    fn sleeper(&self) -> String {
        let found = || std::fs::read_to_string(self.path("sleeper")).ok().filter(|id| id.ends_with('\n'));
        wait_until("the step starts", || found().is_some());
        found().unwrap().trim().to_string()
    }
}

/// Another process writes the file: one of this test program that is just forked for another test would hold a file written
/// here open, and what is open for writing cannot be run.
fn write_script(path: &Path, text: &str) {
    let plain = path.with_extension("text");
    std::fs::write(&plain, text).unwrap();
    let copy = r#"cat "$1" > "$2" && chmod 755 "$2""#;
    let status = Command::new("sh").args(["-c", copy, "sh"]).args([&plain, path]).status();
    assert!(status.unwrap().success());
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited a minute until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_running(id: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // A zombie waits for nobody but its parent.
    !state.is_empty() && !state.contains(") Z ")
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status();
    assert!(status.unwrap().success());
}

fn step<'a>(record: &'a Value, name: &str) -> &'a Value {
    let steps = record["steps"].as_array().unwrap();
    steps.iter().find(|s| s["name"] == name).unwrap_or_else(|| panic!("no step {name} in {record:#}"))
}

fn statuses(record: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_string();
    record["steps"].as_array().unwrap().iter().map(|s| (text(&s["name"]), text(&s["status"]))).collect()
}

#[test]
fn a_step_that_fails_or_hangs_does_not_stop_the_rest() {
    let project = Project::new(&[
        ("rejected", "migrate wrong", "migrate", 60),
        ("hangs", "hang", "migrate", 1),
        ("breaks", "broken", "decode", 60),
        ("crashes", "crash", "decode", 60),
        ("says-nothing", "silent", "decode", 60),
        ("says-something-else", "odd", "decode", 60),
        ("migrate/{model}", "migrate {model} --ledger {scratch}/ledger", "migrate", 60),
    ]);
    let start = Instant::now();
    let (record, printed) = project.run(&[], 1);
    assert!(start.elapsed() < Duration::from_secs(100), "{:?}", start.elapsed());
    let of = |name: &str| {
        let step = step(&record, name);
        (step["status"].as_str().unwrap(), step["reason"].as_str().unwrap_or_default().to_string())
    };
    assert_eq!(of("rejected").0, "failed");
    assert!(of("rejected").1.starts_with("rms_norm is rejected: 8 of 8 cases exceed"), "{record:#}");
    assert_eq!(step(&record, "rejected")["numbers"]["verdict"], "rejected");
    assert_eq!(of("hangs"), ("timed_out", "stopped after its limit of 1 s\nabout to hang".into()));
    assert!(!is_running(&project.sleeper()), "what the step started still runs");
    assert_eq!(of("breaks"), ("failed", "error: out of device memory".into()));
    assert_eq!(step(&record, "breaks")["exit_code"], 2);
    assert_eq!(of("crashes").0, "failed");
    assert!(of("crashes").1.contains("signal: 11"), "{}", of("crashes").1);
    assert_eq!(of("says-nothing"), ("failed", "it wrote no report".into()));
    assert_eq!(of("says-something-else").0, "failed");
    assert!(of("says-something-else").1.contains("missing field"), "{}", of("says-something-else").1);

    let migrated = step(&record, "migrate/llama");
    assert_eq!(migrated["status"], "passed", "{migrated:#}");
    assert_eq!(migrated["command"], "tapml migrate models/llama --ledger SCRATCH/ledger");
    assert_eq!(migrated["numbers"]["launches"]["decode"]["of"], 35);
    assert_eq!(record["complete"], true);
    assert_eq!(record["commit"], "abc123");
    assert_eq!(record["version"], "tapml 9.9.9");
    assert_eq!(record["device"]["name"], "TapML emulator (default)");
    for line in ["[1/7] rejected: tapml migrate wrong", "timed out: hangs: stopped after its limit of 1 s"] {
        assert!(printed.contains(line), "{line} in {printed}");
    }
    let left = std::fs::read_dir(project.path("")).unwrap().flatten().map(|e| e.file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("tapml-gpu-")).collect();
    assert!(left.is_empty(), "{left:?} are left");
}

#[test]
fn what_does_not_fit_into_the_time_is_recorded_as_not_run() {
    let project = Project::new(&[
        ("a", "bench decode", "decode", 60),
        ("b", "hang", "decode", 600),
        ("c", "broken", "decode", 60),
    ]);
    let start = Instant::now();
    let (record, _) = project.run(&["--seconds", "10"], 0);
    assert!(start.elapsed() < Duration::from_secs(60));
    let expected = [("conformance", "passed"), ("a", "passed"), ("b", "not_run"), ("c", "not_run")];
    assert_eq!(statuses(&record), expected.map(|(name, status)| (name.to_string(), status.to_string())));
    let reason = |name: &str| step(&record, name)["reason"].as_str().unwrap();
    assert!(
        reason("b").starts_with("stopped after ") && reason("b").ends_with("no time was left (--seconds)")
    );
    assert_eq!(reason("c"), "no time was left (--seconds)");
    assert_eq!(record["complete"], false);
    assert!(!is_running(&project.sleeper()));
}

#[test]
fn a_stopped_run_leaves_a_whole_file_and_the_same_command_goes_on() {
    let steps = |second: &'static str| {
        [
            ("a", "bench decode", "decode", 60),
            ("b", second, "bugs", 60),
            ("c", "migrate models/llama", "migrate", 60),
        ]
    };
    for name in ["TERM", "INT", "KILL"] {
        let project = Project::new(&steps("hang"));
        let mut child = project.command(&[]).spawn().unwrap();
        let sleeper = project.sleeper();
        signal(&child, name);
        let status = child.wait().unwrap();
        let record = project.record();
        assert_eq!(record["complete"], false);
        assert_eq!(step(&record, "a")["status"], "passed");
        assert_eq!(step(&record, "c")["status"], "not_run");
        if name == "KILL" {
            // Nobody is left who could end it.
            assert_eq!(step(&record, "b")["status"], "running");
            Command::new("sh").args(["-c", &format!("kill {sleeper}")]).status().unwrap();
        } else {
            assert_eq!(status.code(), Some(1));
            assert_eq!(step(&record, "b")["status"], "not_run");
            assert_eq!(step(&record, "b")["reason"], "the run was stopped meanwhile");
            assert!(!is_running(&sleeper));
        }
        let plan = std::fs::read_to_string(project.path("plan.toml")).unwrap();
        std::fs::write(project.path("plan.toml"), plan.replace("\"hang\"", "\"bench\", \"bugs\"")).unwrap();
        let (record, _) = project.run(&[], 0);
        assert_eq!(record["complete"], true);
        assert!(statuses(&record).iter().all(|(_, status)| status == "passed"), "{record:#}");
        assert_eq!(project.calls("bench decode"), 1, "a step that had passed was run again");
    }
}

#[test]
fn a_file_goes_on_by_names_and_only_with_the_same_program_and_device() {
    let steps = [
        ("a", "bench decode", "decode", 60),
        ("b/x", "broken", "decode", 60),
        ("b/y", "bench bugs", "bugs", 60),
    ];
    let project = Project::new(&steps);
    let (record, _) = project.run(&["--only", "b"], 1);
    assert_eq!(step(&record, "a")["status"], "not_run");
    assert_eq!(step(&record, "a")["reason"], "not chosen by --only");
    assert_eq!(record["complete"], false);
    let (record, _) = project.run(&["--only", "a,b/y"], 1);
    let names: Vec<String> = statuses(&record).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["conformance", "a", "b/x", "b/y"]);
    assert_eq!(step(&record, "b/x")["status"], "failed", "what a step had given is lost");
    assert_eq!(record["complete"], true);
    assert_eq!((project.calls("bench bugs"), project.calls("bench decode")), (1, 1));
    project.run(&["--only", "b/y", "--again"], 1);
    assert_eq!((project.calls("bench bugs"), project.calls("bench decode")), (2, 1));

    let before = std::fs::read(project.path("out.json")).unwrap();
    for (more, expected) in [
        (["--commit", "fed456"], "cannot be used multiple times"),
        (["--target", "vulkan"], "holds another run: its target is `cuda`, this run's is `vulkan`"),
        (["--only", "nothing"], "--only: no step is named `nothing`; there are a, b/x, b/y"),
        (["--target", "absent"], "the device cannot be used: error: no driver found"),
        (["--models", "nowhere"], "--models: nowhere is no folder"),
        (["--seconds", "soon"], "invalid value 'soon'"),
    ] {
        let (_, printed) = project.run(&more, 2);
        assert!(printed.contains(expected), "{expected} in {printed}");
    }
    assert_eq!(std::fs::read(project.path("out.json")).unwrap(), before, "a refused run changed the file");
}

#[test]
fn a_software_device_gives_no_speeds_and_one_without_f16_no_f16() {
    let project = Project::new(&[]);
    let plan = format!(
        "{IDENTIFY}
        [[step]]
        name = \"speed\"
        command = [\"bench\", \"decode\"]
        report = \"decode\"
        limit = 60
        needs = [\"hardware\"]
        [[step]]
        name = \"half/{{case}}\"
        command = [\"bench\", \"decode\"]
        report = \"decode\"
        limit = 60
        case = [{{ name = \"f16\", needs = [\"f16\"] }}, {{ name = \"f32\" }}]"
    );
    std::fs::write(project.path("plan.toml"), plan).unwrap();
    let (record, _) = project.run(&[], 0);
    assert_eq!(step(&record, "speed")["status"], "skipped", "the captured report is the emulator's");
    assert_eq!(step(&record, "half/f16")["status"], "passed");
    assert_eq!(record["complete"], true);

    let script = std::fs::read_to_string(project.path("tapml")).unwrap();
    let no_half = script.replace(
        "samples.json \"$report\"",
        "samples.json \"$report\"; sed -i 's/\"f16\":true/\"f16\":false/' \"$report\"",
    );
    assert_ne!(script, no_half);
    write_script(&project.path("tapml"), &no_half);
    let (record, _) = project.run(&["--again"], 0);
    assert_eq!(step(&record, "half/f16")["reason"], "the device has no f16");
    assert_eq!(step(&record, "half/f32")["status"], "passed");
}

#[test]
fn without_a_program_cargo_builds_one_and_without_a_target_the_first_gpu_is_taken() {
    let project = Project::new(&[("a", "bench decode", "decode", 60)]);
    let path = |name: &str| project.path(name).display().to_string();
    let list = r#"{"devices": [{"platform": "emulator", "kind": "cpu"}, {"platform": "opencl", "kind": "discrete"},
        {"platform": "vulkan", "kind": "discrete"}, {"platform": "cuda", "kind": "cpu"}]}"#;
    std::fs::write(project.path("list.json"), list).unwrap();
    let script = std::fs::read_to_string(project.path("tapml")).unwrap();
    let listing = format!("  \"device list\"*) cat {} ;;\n  hang*)", path("list.json"));
    write_script(&project.path("built"), &script.replace("  hang*)", &listing));
    let cargo = format!(
        "#!/bin/sh\necho \"$*\" > {}\nmkdir -p $CARGO_TARGET_DIR/release\ncp {} $CARGO_TARGET_DIR/release/tapml\n",
        path("cargo-calls"),
        path("built")
    );
    write_script(&project.path("cargo"), &cargo);
    let run = |cargo: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(["gpu", "--root", &path(""), "--plan", &path("plan.toml"), "--commit", "abc123"]);
        command.env("CARGO", cargo).env("CARGO_TARGET_DIR", path("target")).env_remove("TAPML_MODELS");
        command.output().unwrap()
    };
    let output = run(&path("cargo"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let calls = std::fs::read_to_string(project.path("cargo-calls")).unwrap();
    assert_eq!(calls.trim(), "build --release -p tapml-cli");
    // The captured report is that of a software device, whose file is no data of the project.
    let files: Vec<_> = std::fs::read_dir(project.path("target/gpu")).unwrap().flatten().collect();
    let name = files[0].file_name().into_string().unwrap();
    assert!(files.len() == 1 && name.ends_with("-vulkan.json"), "{name}");
    assert!(!project.path("docs").exists());

    let output = run("/bin/false");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output).contains("tapml does not build; --tapml PATH takes one that is built"),
        "{}",
        text(&output)
    );
}

#[test]
fn page_shows_the_newest_file_of_each_device() {
    let steps = [
        ("samples", "device check {target} --ops", "device_check", 60),
        ("migrate/llama/f16-q4", "migrate models/llama", "migrate", 60),
        ("migrate/wrong/f32", "migrate wrong", "migrate", 60),
        ("bugs/llama", "bench bugs", "bugs", 60),
        ("decode/llama", "bench decode", "decode", 60),
        ("rest/a", "bench decode", "decode", 60),
        ("rest/b", "bench decode", "decode", 60),
    ];
    let project = Project::new(&steps);
    let (mut record, _) = project.run(&["--only", "samples,migrate,bugs,decode"], 1);
    let data = project.path("docs/data/gpu");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::create_dir_all(project.path("docs/results")).unwrap();
    let mut write = |name: &str, date: &str, target: &str| {
        record["date"] = date.into();
        record["target"] = target.into();
        std::fs::write(data.join(name), record.to_string()).unwrap();
    };
    write("2026-01-31-cuda.json", "2026-01-31", "cuda");
    write("2026-02-01-cuda.json", "2026-02-01", "cuda");
    write("2026-01-31-vulkan.json", "2026-01-31", "vulkan");
    let make = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        let output = command.args(["gpu", "--page", "--root"]).arg(project.path("")).output().unwrap();
        (
            output.status.code(),
            text(&output),
            std::fs::read_to_string(project.path("docs/results/gpu.md")).unwrap_or_default(),
        )
    };
    let (code, printed, page) = make();
    assert_eq!(code, Some(0), "{printed}");
    for line in [
        "## `cuda` on TapML emulator (default)",
        "## `vulkan` on TapML emulator (default)",
        "[2026-02-01-cuda.json](../data/gpu/2026-02-01-cuda.json)",
        "| `samples` | 587 | 0 | 23 |",
        "| `add/row` | 3 | 0 | 0.96 |",
        "| `llama/f16-q4` | accepted | 12 of 12 | 2016 of 2016 | 2704 | 0 | 0.99 |",
        "| 31 of 35 | 48 of 48 |",
        "| `norm_linear/gemv` | decode | 1 | 0 | 17 | 544 | 0 | 0.99 |",
        "| `add/portable` | decode | 1 | 1 | 4 | 0 | 0 | not checked |",
        "| `bugs/llama` | 6 | 4 | 0 | 0 | 2 | 0 |",
        "| `llama` | 40.1 (28.7–44.2), 8 after 16 | 2.1 % of 3.06 MB at 5.77 GB/s | 188 (185–299), of 16 | 3 |",
        "* `migrate/wrong/f32`, failed: rms_norm is rejected: 8 of 8 cases exceed the allowed error",
        "* not run, not chosen by --only: `rest/a`, `rest/b`\n",
    ] {
        assert!(page.contains(line), "{line}\nin\n{page}");
    }
    assert!(!page.contains("2026-01-31-cuda"), "{page}");
    assert!(!page.contains("No file is there"), "{page}");

    std::fs::write(data.join("2026-02-02-cuda.json"), "{\"schema\": 2}").unwrap();
    let (code, printed, same) = make();
    assert_eq!((code, same), (Some(2), page));
    assert!(printed.contains("2026-02-02-cuda.json is no record of a run on a GPU"), "{printed}");
}

/// With the real `tapml`, where it is built beside this program: the plan's own commands run, and its reports are read.
#[test]
fn the_built_in_plan_runs_on_the_emulator() {
    let tapml = Path::new(env!("CARGO_BIN_EXE_xtask")).with_file_name("tapml");
    if !tapml.is_file() {
        return tapml_testing::skip("tapml", &format!("{} is not built", tapml.display()));
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command
        .args(["gpu", "--target", "emulator?kind=gpu", "--commit", "abc123", "--quick", "--tapml"])
        .arg(&tapml);
    command.args(["--only", "samples,migrate/llama_draft/f16-q4,decode/llama-3.2-1b", "--out"]).arg(&out);
    let output = command.current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let record: Value = serde_json::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
    let checked = &step(&record, "samples")["numbers"];
    assert!(checked["passed"].as_u64().unwrap() > 300 && checked["failed"] == 0, "{checked:#}");
    let operators = checked["operators"].as_u64().unwrap() as usize;
    assert!(checked["kernels"].as_array().unwrap().len() > operators / 2, "{checked:#}");
    let migrated = &step(&record, "migrate/llama_draft/f16-q4")["numbers"];
    assert_eq!(migrated["verdict"], "accepted");
    assert_eq!(migrated["calls"], migrated["checked"]);
    assert!(migrated["launches"]["decode"]["checked"].as_u64().unwrap() > 0, "{migrated:#}");
    assert_eq!(step(&record, "decode/llama-3.2-1b/q4")["status"], "skipped");
    assert_eq!(step(&record, "bugs/llama")["status"], "not_run");
}
