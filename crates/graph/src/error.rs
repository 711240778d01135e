//! The error type every TapML library crate returns: a kind to match on, a message, context, and advice.
//! It holds no I/O and prints nothing.

use std::fmt;

/// What sort of failure this is. Callers match on it; the text is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller's data is wrong: a file, a flag, a graph, a tensor.
    InvalidInput,
    /// The request is legal but this build, platform or device cannot serve it.
    Unsupported,
    /// A file or directory could not be read or written.
    Io,
    /// No driver, adapter or device of the wanted sort is present.
    Unavailable,
    /// Device source code was refused by its compiler or validator.
    Compile,
    /// The device ran out of memory.
    OutOfMemory,
    /// The device was lost and cannot be used again.
    DeviceLost,
    /// The user asked to stop.
    Interrupted,
    /// Work did not end within its time limit, such as a kernel with a loop that never ends. Detail `deadline` is the limit.
    Timeout,
    /// TapML itself is wrong. Reports of this kind are bugs.
    Bug,
}

impl ErrorKind {
    /// A short name in plain words.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::InvalidInput => "invalid input",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Io => "input/output",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Compile => "compile error",
            ErrorKind::OutOfMemory => "out of memory",
            ErrorKind::DeviceLost => "device lost",
            ErrorKind::Interrupted => "interrupted",
            ErrorKind::Timeout => "time limit",
            ErrorKind::Bug => "bug in TapML",
        }
    }
}

/// An error: kind, message, the contexts it passed through, advice, and named details
/// (for a device: `kernel`, `line`, `log`, `limit`, `asked`, `offered`, `recent`, `backtrace`).
#[derive(Clone, Debug)]
pub struct Error {
    /// In a box, so that a `Result` is small.
    inner: Box<ErrorInner>,
}

#[derive(Clone, Debug)]
struct ErrorInner {
    /// What callers match on.
    kind: ErrorKind,
    /// What went wrong, without context.
    message: String,
    /// Innermost first.
    context: Vec<String>,
    /// What the reader can do.
    hint: Option<String>,
    /// Name and value, in the order in which they were added.
    details: Vec<(String, String)>,
}

/// Result with TapML's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of this kind. The message is lower case without a final stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error {
            inner: Box::new(ErrorInner {
                kind,
                message: message.into(),
                context: Vec::new(),
                hint: None,
                details: Vec::new(),
            }),
        }
    }

    /// Shorthand for [`ErrorKind::InvalidInput`].
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidInput, message)
    }

    /// Shorthand for [`ErrorKind::Unsupported`].
    pub fn unsupported(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unsupported, message)
    }

    /// Shorthand for [`ErrorKind::Bug`].
    pub fn bug(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Bug, message)
    }

    /// An I/O failure at `path`; says what was being done (`"read"`, `"create"`, …).
    pub fn io(doing: &str, path: &std::path::Path, cause: &std::io::Error) -> Error {
        let error = Error::new(ErrorKind::Io, format!("could not {doing} {}: {cause}", path.display()));
        let error = error.with_detail("path", path.display().to_string());
        io_hint(cause.kind()).into_iter().fold(error, Error::with_hint)
    }

    /// Adds an outer context, such as the file or node being worked on.
    pub fn context(mut self, context: impl Into<String>) -> Error {
        self.inner.context.push(context.into());
        self
    }

    /// Sets the advice: what the reader can do about it.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Error {
        self.inner.hint = Some(hint.into());
        self
    }

    /// Adds a named detail that is too long or too technical for the message.
    pub fn with_detail(mut self, name: impl Into<String>, value: impl Into<String>) -> Error {
        self.inner.details.push((name.into(), value.into()));
        self
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The innermost message, without context.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// The advice, if any.
    pub fn hint(&self) -> Option<&str> {
        self.inner.hint.as_deref()
    }

    /// All named details in the order they were added.
    pub fn details(&self) -> &[(String, String)] {
        &self.inner.details
    }

    /// The first detail of this name.
    pub fn detail(&self, name: &str) -> Option<&str> {
        self.inner.details.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// What to do about failures of a place, whatever is read or written there.
fn io_hint(kind: std::io::ErrorKind) -> Option<&'static str> {
    use std::io::ErrorKind;
    match kind {
        ErrorKind::ReadOnlyFilesystem => Some("nothing can be written there: name another place"),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some("free some space, or name another place"),
        ErrorKind::PermissionDenied => {
            Some("this user lacks the permission: change it, or name another place")
        }
        _ => None,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The outermost context comes first: what was done, then where.
        for context in self.inner.context.iter().rev() {
            write!(f, "{context}: ")?;
        }
        f.write_str(&self.inner.message)
    }
}

impl std::error::Error for Error {}

/// Adds context to a `Result` in passing.
pub trait Context<T> {
    /// Wraps an error with the context that `f` makes.
    fn context(self, f: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    fn context(self, f: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| e.context(f()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_read_from_the_outside_in() {
        let inner: Result<()> = Err(Error::invalid("expected 3, found 4"));
        let error = inner.context(|| "tensor `w`".into()).context(|| "file x".into()).unwrap_err();
        assert_eq!(error.to_string(), "file x: tensor `w`: expected 3, found 4");
        assert_eq!((error.message(), error.kind()), ("expected 3, found 4", ErrorKind::InvalidInput));
        assert_eq!(error.hint(), None);
    }

    #[test]
    fn details_and_hint_stay_out_of_the_message() {
        let error = Error::unsupported("no f16")
            .with_hint("use f32")
            .with_detail("limit", "a")
            .with_detail("limit", "b");
        assert_eq!(error.to_string(), "no f16");
        assert_eq!(
            (error.hint(), error.detail("limit"), error.detail("asked")),
            (Some("use f32"), Some("a"), None)
        );
        assert_eq!(error.details().len(), 2);
    }

    #[test]
    fn io_errors_name_the_path() {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = Error::io("read", std::path::Path::new("a/b.json"), &missing);
        assert!(error.to_string().starts_with("could not read a/b.json: "));
        assert_eq!((error.kind(), error.detail("path")), (ErrorKind::Io, Some("a/b.json")));
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let error = Error::io("write", std::path::Path::new("a/b.json"), &full);
        assert!(error.hint().is_some_and(|hint| hint.contains("free some space")));
    }
}
