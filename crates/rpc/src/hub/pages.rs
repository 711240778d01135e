//! What the hub serves to browsers: the page that turns a tab into an agent. `web/` holds its sources; its `dist` is kept
//! in the repository, so that nobody needs Node to build TapML.

use flate2::read::GzDecoder;
use std::io::Read;
use std::sync::LazyLock;

/// A page by its path: its type and its bytes.
pub type Page = (&'static str, &'static str, &'static [u8]);

/// The agent as it is kept, packed by gzip.
const AGENT: &[u8] = include_bytes!("../../../../web/dist/agent.js.gz");

/// The agent as it is given: a client need not know how to unpack.
static UNPACKED: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut text = Vec::new();
    // A file of this build is whole; a test reads it.
    let read = GzDecoder::new(AGENT).read_to_end(&mut text);
    if read.is_ok() { text } else { Vec::new() }
});

/// The bytes of a page as a client gets them.
pub fn bytes(page: &'static Page) -> &'static [u8] {
    // The first two bytes of gzip (RFC 1952, section 2.3.1), which begin no text.
    if page.2.starts_with(&[0x1f, 0x8b]) { &UNPACKED } else { page.2 }
}

/// Pages by their paths.
pub const PAGES: &[Page] = &[
    ("/", "text/html", include_bytes!("../../../../web/dist/index.html")),
    ("/style.css", "text/css", include_bytes!("../../../../web/dist/style.css")),
    ("/page.js", "text/javascript", include_bytes!("../../../../web/dist/page.js")),
    ("/agent.js", "text/javascript", AGENT),
    // What starts the same agent under Node.
    ("/node-agent.mjs", "text/javascript", include_bytes!("../../../../web/dist/node-agent.mjs")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_given_as_text() {
        for page in PAGES {
            let text = std::str::from_utf8(bytes(page)).expect(page.0);
            assert!(!text.is_empty(), "{} is empty", page.0);
        }
        assert!(UNPACKED.len() > AGENT.len());
    }
}
