//! A headless Chromium with WebGPU on its software adapter, for tests of what runs in a browser.
//!
//! Processes are found and killed through `/proc` and `kill`, so this is for Linux.

use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Where Debian's package puts it.
const CHROMIUM: &str = "/usr/bin/chromium";

/// Chromium with one tab and a profile of its own, until it is dropped.
#[derive(Debug)]
pub struct Browser {
    /// The browser's own process; its helpers are its children.
    process: Child,
    /// Removed when the browser is closed.
    profile: std::path::PathBuf,
}

impl Browser {
    /// Whether there is one; notes a skip otherwise.
    pub fn is_here() -> bool {
        let here = Path::new(CHROMIUM).exists();
        if !here {
            crate::skip("chromium", "/usr/bin/chromium is not installed");
        }
        here
    }

    /// Opens a page.
    ///
    /// # Errors
    /// If the profile cannot be made or Chromium does not start.
    pub fn open(url: &str) -> std::io::Result<Browser> {
        // One at a time has this name: processes have different ids, threads count up.
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let profile = std::env::temp_dir().join(format!("tapml-browser-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&profile)?;
        let process = Command::new(CHROMIUM)
            // No sandbox: containers that tests run in allow none. SwiftShader is Chromium's software
            // Vulkan.
            .args(["--headless=new", "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-sync"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-extensions"])
            .args(["--disable-dev-shm-usage", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Browser { process, profile })
    }

    /// Kills the process that talks to the GPU. False if there is none.
    pub fn kill_gpu_process(&self) -> bool {
        let mut family = vec![self.process.id()];
        let mut at = 0;
        while let Some(parent) = family.get(at).copied() {
            // Breadth first: the GPU process is a child or grandchild.
            family.extend(children(parent));
            at += 1;
        }
        let is_gpu = |id: &&u32| {
            let line = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
            line.contains("--type=gpu-process")
        };
        let gpu = family.iter().find(is_gpu);
        gpu.is_some_and(|id| {
            Command::new("kill").args(["-9", &id.to_string()]).status().is_ok_and(|s| s.success())
        })
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
        // Its helpers write for a moment longer.
        for _ in 0..20 {
            if std::fs::remove_dir_all(&self.profile).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// The children of a process; those of all its threads.
fn children(parent: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let is_child = |id: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // The name in parentheses may hold anything; state and parent follow it.
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        after.split_whitespace().nth(1).and_then(|p| p.parse().ok()) == Some(parent)
    };
    let ids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(is_child).collect()
}
