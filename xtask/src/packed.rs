//! Files of measurements, of which large ones are packed: `.json.gz`.

use flate2::read::GzDecoder;
use std::fs::File;
use std::io::{Read, Result};
use std::path::Path;

/// Whether this is a file of measurements.
pub fn is_measurement(path: &Path) -> bool {
    [".json", ".json.gz"].iter().any(|end| path.to_string_lossy().ends_with(end))
}

/// The text of a file, which may be packed.
pub fn read_text(path: &Path) -> Result<String> {
    if path.extension().is_none_or(|extension| extension != "gz") {
        return std::fs::read_to_string(path);
    }
    let mut text = String::new();
    GzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    Ok(text)
}
