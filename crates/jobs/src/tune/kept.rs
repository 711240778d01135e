//! Where choices are kept, and which a device runs with.

use std::path::PathBuf;
use tapml_device::DeviceInfo;
use tapml_graph::{Error, Result};
use tapml_kernels::TuningCache;

/// Larger files are no choices.
const MAX_BYTES: u64 = 16 << 20;

/// The choices that a device runs with: those of the file that the option `tuning` names, none if it is `off`, else those
/// that `tapml tune` kept for this device and driver.
pub(crate) fn choices(option: Option<&str>, info: &DeviceInfo) -> Result<Option<TuningCache>> {
    let file = match option {
        Some("off") => return Ok(None),
        Some(file) => PathBuf::from(file),
        None => match cache_file(&info.platform, &info.name, &info.driver).filter(|file| file.is_file()) {
            Some(file) => file,
            None => return Ok(None),
        },
    };
    let text = tapml_files::read_text(&file, MAX_BYTES, "choices of kernels")?;
    let choices = match TuningCache::parse(&text) {
        // Kept by another release, say: as good as none, and written anew by the next `tapml tune`.
        Err(_) if option.is_none() => return Ok(None),
        parsed => parsed.map_err(|e| e.context(file.display().to_string()))?,
    };
    match option {
        Some(_) if (&choices.platform, &choices.device) != (&info.platform, &info.name) => {
            let text = format!(
                "{} was measured on {} ({}), not on {} ({})",
                file.display(),
                choices.device,
                choices.platform,
                info.name,
                info.platform
            );
            Err(Error::invalid(text)
                .with_hint("`tapml tune` measures on this device; `tuning=off` does without"))
        }
        _ => Ok(Some(choices).filter(|choices| option.is_some() || choices.fit(info))),
    }
}

/// Where the choices for a device and driver are kept, in [`tapml_device::user_cache`]; `None` if there is none.
pub fn cache_file(platform: &str, device: &str, driver: &str) -> Option<PathBuf> {
    let name = format!("{platform}-{device}-{driver}");
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' };
    let name: String = name.chars().map(safe).take(200).collect();
    Some(tapml_device::user_cache()?.join("tuning").join(name + ".json"))
}
