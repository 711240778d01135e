//! The page of a site and its module, built from `web/src/site` and kept in `web/dist`.

use flate2::read::GzDecoder;
use ruzstd::decoding::StreamingDecoder;
use std::borrow::Cow;
use std::io::Read;
use tapml_graph::{Error, Result};

/// Files of every site by name; some are packed by gzip.
pub(super) const PAGES: [(&str, &[u8]); 2] = [
    ("index.html", include_bytes!("../../../../web/dist/site.html")),
    ("tapml.js", include_bytes!("../../../../web/dist/tapml.js.gz")),
];

/// The first bytes of gzip (RFC 1952, section 2.3.1) and of Zstandard (RFC 8878, section 3.1.1), which begin no text.
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// The bytes as they are written: a server of files need not know how to unpack.
pub(super) fn unpack(bytes: &'static [u8]) -> Result<Cow<'static, [u8]>> {
    let damaged = |e: &dyn std::fmt::Display| Error::bug(format!("a file of this build: {e}"));
    let mut content = Vec::new();
    if bytes.starts_with(GZIP) {
        GzDecoder::new(bytes).read_to_end(&mut content).map_err(|e| damaged(&e))?;
    } else if bytes.starts_with(ZSTD) {
        let mut packed = StreamingDecoder::new(bytes).map_err(|e| damaged(&e))?;
        packed.read_to_end(&mut content).map_err(|e| damaged(&e))?;
    } else {
        return Ok(Cow::Borrowed(bytes));
    }
    Ok(Cow::Owned(content))
}
