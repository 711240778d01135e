//! Reading: what a path names is looked at before it is opened, and no more is read than its reader can use.
//!
//! The kind is checked twice: by name before opening, because opening a pipe would wait, and on the open
//! file, because the name may have changed meanwhile.

use std::fs::{self, File, Metadata};
use std::io::Read;
use std::path::Path;
use tapml_graph::{Error, Result};

/// Opens a regular file for reading. What never ends or never begins, such as a device or a pipe, is refused unopened.
///
/// # Errors
/// If there is no such file, it may not be read, or it is no regular file.
pub fn open(path: &Path) -> Result<File> {
    let failed = |e: std::io::Error| Error::io("read", path, &e);
    expect_regular(path, &fs::metadata(path).map_err(failed)?)?;
    let file = File::open(path).map_err(failed)?;
    expect_regular(path, &file.metadata().map_err(failed)?)?;
    Ok(file)
}

/// Reads a regular file of at most `most` bytes; `what` says what it should be, such as `a kernel`.
///
/// # Errors
/// If it cannot be opened or has more bytes.
pub fn read(path: &Path, most: u64, what: &str) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| Error::io("read", path, &e);
    let file = open(path)?;
    let len = file.metadata().map_err(failed)?.len();
    let mut bytes = Vec::new();
    if len <= most {
        // A file may grow meanwhile.
        file.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    }
    let len = len.max(bytes.len() as u64);
    if len > most {
        let text = format!("{}: expected {what} of at most {most} bytes, found {len}", path.display());
        return Err(Error::invalid(text).with_hint("name another file"));
    }
    Ok(bytes)
}

/// As [`read`], of text in UTF-8.
pub fn read_text(path: &Path, most: u64, what: &str) -> Result<String> {
    String::from_utf8(read(path, most, what)?).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::invalid(format!(
            "{}: expected {what} as UTF-8 text, found other bytes at {at}",
            path.display()
        ))
        .with_hint("save the file as UTF-8")
    })
}

/// Fails unless these are the data of a regular file.
pub fn expect_regular(path: &Path, data: &Metadata) -> Result<()> {
    if data.is_file() {
        return Ok(());
    }
    let hint =
        if data.is_dir() { "name a file in it" } else { "write what it gives to a file, and name that" };
    let text = format!("{}: expected a regular file, found {}", path.display(), kind(data));
    Err(Error::invalid(text).with_hint(hint))
}

/// What a path names instead of a regular file.
fn kind(data: &Metadata) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = data.file_type();
        if kind.is_fifo() {
            return "a pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    if data.is_dir() { "a folder" } else { "something else" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_a_fitting_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        fs::write(&path, "ä€").unwrap();
        assert_eq!(read_text(&path, 5, "a text").unwrap(), "ä€");
        let error = read_text(&path, 4, "a text").unwrap_err().to_string();
        assert!(error.ends_with("a.txt: expected a text of at most 4 bytes, found 5"), "{error}");
        fs::write(&path, b"ab\xff").unwrap();
        assert!(read_text(&path, 4, "a text").unwrap_err().to_string().ends_with("found other bytes at 2"));
        let error = read(folder.path(), 4, "a text").unwrap_err();
        assert!(error.to_string().ends_with("expected a regular file, found a folder"), "{error}");
        assert!(
            read(&folder.path().join("b"), 4, "a text").unwrap_err().to_string().contains("could not read")
        );
    }

    #[cfg(unix)]
    #[test]
    fn devices_and_pipes_are_refused_unopened() {
        let error = read(Path::new("/dev/zero"), 4, "a text").unwrap_err().to_string();
        assert!(error.ends_with("found a device"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(read(&socket, 4, "a text").unwrap_err().to_string().ends_with("found a socket"));
    }
}
