//! `cargo xtask dist`: an archive of the command that runs without Rust or the repository. `--check FILE` unpacks one, compares
//! its checksums and runs the command in it.

mod licences;

use anyhow::{Context, Result, ensure};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "usage: cargo xtask dist [--out DIR] [--binary FILE] | dist --check FILE";
const SUMS: &str = "SHA256SUMS";
/// Where each shell looks for completions below `share`.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/tapml"),
    ("zsh", "zsh/site-functions/_tapml"),
    ("fish", "fish/vendor_completions.d/tapml.fish"),
];
/// Files of the repository, and where they go.
const COPIED: [(&str, &str); 6] = [
    ("README.md", "README.md"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("LICENSE-APACHE", "LICENSE-APACHE"),
    ("LICENSE-MIT", "LICENSE-MIT"),
    ("models/LICENSES.md", "share/tapml/models/LICENSES.md"),
    ("models/README.md", "share/tapml/models/README.md"),
];

/// What the command line says.
#[derive(Default)]
struct DistOptions {
    out: Option<PathBuf>,
    binary: Option<PathBuf>,
    check: Option<PathBuf>,
}

impl DistOptions {
    fn parse(arguments: &[String]) -> Result<DistOptions> {
        let mut options = DistOptions::default();
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { anyhow::bail!(USAGE) };
            let place = match name.as_str() {
                "--out" => &mut options.out,
                "--binary" => &mut options.binary,
                "--check" => &mut options.check,
                _ => anyhow::bail!(USAGE),
            };
            *place = Some(value.into());
        }
        Ok(options)
    }
}

pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let options = DistOptions::parse(arguments)?;
    if let Some(archive) = options.check {
        return check(&archive);
    }
    let binary = match options.binary {
        Some(binary) => binary,
        None => build(root)?,
    };
    let out = options.out.unwrap_or_else(|| crate::target(root).join("dist"));
    let archive = pack(root, &binary, &out)?;
    check(&archive)
}

/// The release build of the command, without symbols.
fn build(root: &Path) -> Result<PathBuf> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["rustc", "--release", "-p", "tapml-cli", "--bin", "tapml"]);
    cargo.args(["--", "-C", "strip=symbols"]);
    ensure!(cargo.current_dir(root).status()?.success(), "the command does not build");
    Ok(crate::target(root).join("release").join(format!("tapml{}", std::env::consts::EXE_SUFFIX)))
}

/// Writes the archive and its checksum into a folder; gives the archive.
fn pack(root: &Path, binary: &Path, out: &Path) -> Result<PathBuf> {
    let name =
        format!("tapml-{}-{}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS);
    let mut files = collect(root, binary)?;
    let sums: String = files.iter().map(|(path, bytes)| format!("{}  {path}\n", sum(bytes))).collect();
    files.insert(SUMS.into(), sums.into_bytes());

    std::fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let archive = out.join(format!("{name}.tar.gz"));
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    for (path, bytes) in &files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(if path.starts_with("bin/") { 0o755 } else { 0o644 });
        tar.append_data(&mut header, format!("{name}/{path}"), bytes.as_slice())?;
    }
    let packed = tar.into_inner()?.finish()?;
    std::fs::write(&archive, &packed).with_context(|| archive.display().to_string())?;
    let line = format!("{}  {name}.tar.gz\n", sum(&packed));
    std::fs::write(out.join(format!("{name}.tar.gz.sha256")), line)?;
    let unpacked: usize = files.values().map(Vec::len).sum();
    let megabytes = |bytes: usize| bytes as f64 / 1e6;
    println!(
        "{}: {:.1} MB, unpacked {:.1} MB in {} files, the command {:.1} MB",
        archive.display(),
        megabytes(packed.len()),
        megabytes(unpacked),
        files.len(),
        megabytes(
            files.iter().filter(|(path, _)| path.starts_with("bin/")).map(|(_, bytes)| bytes.len()).sum()
        ),
    );
    Ok(archive)
}

/// The files of the archive by their paths.
fn collect(root: &Path, binary: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let read = |path: &Path| std::fs::read(path).with_context(|| path.display().to_string());
    let mut files = BTreeMap::new();
    files.insert(format!("bin/tapml{}", std::env::consts::EXE_SUFFIX), read(binary)?);
    for (from, to) in COPIED {
        files.insert(to.to_string(), read(&root.join(from))?);
    }
    for entry in walkdir::WalkDir::new(root.join("models/llama")) {
        let entry = entry?;
        if entry.file_type().is_file() {
            let inside = entry.path().strip_prefix(root)?.display().to_string().replace('\\', "/");
            files.insert(format!("share/tapml/{inside}"), read(entry.path())?);
        }
    }
    files.insert("THIRD-PARTY-LICENSES.txt".into(), licences::collect(root)?.into_bytes());
    for (shell, to) in SHELLS {
        files.insert(format!("share/{to}"), ask(Command::new(binary).args(["completions", shell]))?);
    }
    let man = DistFolder::new()?;
    ask(Command::new(binary).args(["man", "--out"]).arg(&man.0))?;
    for entry in std::fs::read_dir(&man.0)? {
        let entry = entry?;
        files.insert(format!("share/man/man1/{}", entry.file_name().display()), read(&entry.path())?);
    }
    Ok(files)
}

/// What a command writes to its standard output. Fails unless it ends with code 0.
fn ask(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Unpacks an archive, compares its checksums and runs the command in it, without the repository.
fn check(archive: &Path) -> Result<()> {
    let folder = DistFolder::new()?;
    let file = std::fs::File::open(archive).with_context(|| archive.display().to_string())?;
    tar::Archive::new(GzDecoder::new(file)).unpack(&folder.0).context("the archive cannot be unpacked")?;
    let inside = std::fs::read_dir(&folder.0)?.next().context("the archive is empty")??.path();
    let sums = std::fs::read_to_string(inside.join(SUMS)).context(SUMS)?;
    for line in sums.lines() {
        let (expected, path) = line.split_once("  ").with_context(|| format!("{SUMS}: `{line}`"))?;
        let bytes = std::fs::read(inside.join(path)).with_context(|| path.to_string())?;
        ensure!(sum(&bytes) == expected, "{path} is not what {SUMS} says");
    }
    let binary = inside.join(format!("bin/tapml{}", std::env::consts::EXE_SUFFIX));
    let tapml = |arguments: &[&str]| ask(Command::new(&binary).args(arguments).current_dir(&inside));
    let version = String::from_utf8(tapml(&["--version"])?)?;
    ensure!(version.trim() == format!("tapml {}", env!("CARGO_PKG_VERSION")), "it says `{}`", version.trim());
    tapml(&["doctor", "cpu", "emulator"])?;
    let model = ["generate", "share/tapml/models/llama", "--target", "cpu"];
    let text = tapml(&[&model[..], &["--prompt", "Once upon a time", "--max-tokens", "4"]].concat())?;
    ensure!(!text.is_empty(), "it generates nothing");
    println!("{}: {} files as {SUMS} says; doctor and generate run", archive.display(), sums.lines().count());
    Ok(())
}

/// A folder that goes away with this.
struct DistFolder(PathBuf);

impl DistFolder {
    fn new() -> Result<DistFolder> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tapml-dist-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(DistFolder(path))
    }
}

impl Drop for DistFolder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[cfg(test)]
mod tests;
