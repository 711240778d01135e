//! The page of a site and its module, built from `web/src/site` and kept in `web/dist`.

use flate2::read::GzDecoder;
use std::borrow::Cow;
use std::io::Read;
use tapml_graph::{Error, Result};

/// Files of every site by name; some are packed by gzip.
pub(super) const PAGES: [(&str, &[u8]); 2] = [
    ("index.html", include_bytes!("../../../../web/dist/site.html")),
    ("tapml.js", include_bytes!("../../../../web/dist/tapml.js.gz")),
];

/// The bytes as they are written: a server of files need not know how to unpack.
pub(super) fn unpack(bytes: &'static [u8]) -> Result<Cow<'static, [u8]>> {
    // The first two bytes of gzip (RFC 1952, section 2.3.1), which begin no text.
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut text = Vec::new();
    GzDecoder::new(bytes)
        .read_to_end(&mut text)
        .map_err(|e| Error::bug(format!("a page of this build: {e}")))?;
    Ok(Cow::Owned(text))
}
