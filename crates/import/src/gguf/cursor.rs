//! Reads little-endian numbers and texts from bytes that may end anywhere.
//!
//! Every read is checked against the end; an error names the byte. Nothing is reserved by a count before
//! the count is known to fit.

use tapml_graph::{Error, Result};

/// The advice for a file that ends too early.
pub const TRUNCATED: &str = "the copy or download was cut off; fetch the file again";
/// The advice for a file that contradicts itself.
pub const DAMAGED: &str = "the file is damaged or was made by a faulty writer; download or convert it again";

/// A place in a file's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    /// The whole file, so that positions are those of the file.
    bytes: &'a [u8],
    /// At most as large as `bytes` has bytes.
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The beginning.
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    /// Bytes before this place.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Bytes from this place on.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// If fewer bytes are left; the cursor then stays where it is.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let taken = rest.get(..len).ok_or_else(|| {
            let text =
                format!("{len} bytes are needed at byte {}, the file has {} more", self.at, rest.len());
            Error::invalid(text).with_hint(TRUNCATED)
        })?;
        self.at += len;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    /// A number of 32 bits.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A number of 64 bits.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A count of things that take at least `least` bytes each. Fails if the rest of the file cannot hold them, so that
    /// nothing is reserved for things that are not there.
    pub fn count(&mut self, what: &str, least: usize) -> Result<usize> {
        let claimed = self.u64()?;
        self.check_count(claimed, what, least)
    }

    /// A count that was read before; see [`Cursor::count`].
    pub fn check_count(&self, claimed: u64, what: &str, least: usize) -> Result<usize> {
        let most = self.remaining() / least.max(1);
        usize::try_from(claimed).ok().filter(|&count| count <= most).ok_or_else(|| {
            let text = format!("{claimed} {what} are claimed, the rest of the file holds at most {most}");
            Error::invalid(text).with_hint(DAMAGED)
        })
    }

    /// A length of 64 bits and as many bytes.
    ///
    /// # Errors
    /// If the length is larger than what is left.
    pub fn blob(&mut self) -> Result<&'a [u8]> {
        let len = self.count("bytes of a text", 1)?;
        self.take(len)
    }
}

/// The bytes as text. Fails unless they are UTF-8.
pub fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|e| {
        let text =
            format!("a text of {} bytes is not UTF-8 from its byte {} on", bytes.len(), e.valid_up_to());
        Error::invalid(text).with_hint(DAMAGED)
    })
}
