//! Files of a site, each with its hash.

use serde::Serialize;
use sha2::{Digest, Sha256};
use std::path::Path;
use tapml_graph::Result;

/// A file of a site.
#[derive(Clone, Debug, Serialize)]
pub struct SiteFile {
    /// Its path in the site.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// Of its content, in hexadecimal.
    pub sha256: String,
}

/// Writes a file of the site.
pub(super) fn write(folder: &Path, file: &str, bytes: &[u8]) -> Result<SiteFile> {
    tapml_files::write(&folder.join(file), bytes)?;
    Ok(SiteFile { file: file.into(), bytes: bytes.len() as u64, sha256: hash(bytes) })
}

/// SHA-256 in hexadecimal: the one that browsers compute by themselves.
fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
