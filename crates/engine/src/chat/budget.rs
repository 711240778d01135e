//! What one rendering of a template may take: bytes that it makes, the size and depth of its values, and work. Every rendering
//! has a thread of its own, whose counters start at zero.
//!
//! Two kinds of limits: sums over a rendering (bytes made, values looked at) and limits of one value (size,
//! depth). The first limit that is met is kept, because a template can catch errors.

use minijinja::value::{DynObject, ObjectRepr, Tuple, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::cell::{Cell, RefCell};
use std::fmt::Write;

/// Instructions that a rendering may take: enough for long chats, little enough that an endless loop ends.
pub const STEPS: u64 = 20_000_000;
/// Bytes of all texts and lists that a rendering may make, whether it keeps them or not.
const MADE: usize = 64 << 20;
/// Bytes of one value as it would be printed, parts that are held twice counted twice.
pub const VALUE: usize = 8 << 20;
/// Values within each other.
const DEPTH: usize = 64;
/// Values that operations look at.
const WORK: usize = 1 << 26;
/// Bytes that count for each value in a list or map.
const NODE: usize = 32;
/// Bytes that count for an attribute of a namespace.
pub const SLOT: usize = 128;

/// With the template library's own error.
pub type Result<T> = std::result::Result<T, Error>;

thread_local! {
    // A rendering has its own thread, so that these need no lock.
    static MADE_BYTES: Cell<usize> = const { Cell::new(0) };
    static WORK_DONE: Cell<usize> = const { Cell::new(0) };
    static EXCEEDED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The limit that this thread's rendering went beyond.
pub fn exceeded_limit() -> Option<String> {
    EXCEEDED.with_borrow(Clone::clone)
}

/// Notes the limit and makes the error.
fn exceed(limit: String) -> Error {
    EXCEEDED.with_borrow_mut(|first| {
        first.get_or_insert_with(|| limit.clone());
    });
    Error::new(ErrorKind::InvalidOperation, limit)
}

/// Counts bytes of new text or lists.
pub fn make(bytes: usize) -> Result<()> {
    let sum = MADE_BYTES.get().saturating_add(bytes);
    MADE_BYTES.set(sum);
    if sum <= MADE {
        return Ok(());
    }
    Err(exceed(format!("makes more than {} MiB of text and lists", MADE >> 20)))
}

/// Counts values that an operation looks at.
pub fn work(values: usize) -> Result<()> {
    let sum = WORK_DONE.get().saturating_add(values);
    WORK_DONE.set(sum);
    if sum <= WORK {
        return Ok(());
    }
    Err(exceed(format!("looks at more than {} million values", WORK / 1_000_000)))
}

/// Fails if a value of so many bytes may not be made.
pub fn check_size(bytes: usize) -> Result<()> {
    if bytes <= VALUE {
        return Ok(());
    }
    Err(exceed(format!("makes a text or a list of more than {} MiB", VALUE >> 20)))
}

/// Bytes of a value as it would be printed; counts the work of looking at it. Fails for what is too large or too deep.
pub fn measure(value: &Value) -> Result<usize> {
    let mut bytes = 0;
    add(value, 0, &mut bytes)?;
    Ok(bytes)
}

/// Adds a value and its parts, depth first.
fn add(value: &Value, depth: usize, bytes: &mut usize) -> Result<()> {
    let len = value.as_str().map_or_else(|| value.as_bytes().map_or(0, <[u8]>::len), str::len);
    // An empty value in a list takes room as well.
    *bytes += NODE + len;
    // A long text counts as one more value for every 64 bytes.
    work(1 + len / 64)?;
    check_size(*bytes)?;
    let Some(object) = value.as_object() else { return Ok(()) };
    if depth > DEPTH {
        return Err(exceed(format!("nests values more than {DEPTH} deep")));
    }
    if changes(object) {
        // What it holds may change after it is measured here, so that it may even come to hold itself.
        return match depth {
            0 => add_parts(object, depth, bytes),
            _ => Err(exceed("stores a namespace or a loop within another value".into())),
        };
    }
    add_parts(object, depth, bytes)
}

/// The items of a list, or the keys and values of a map.
fn add_parts(object: &DynObject, depth: usize, bytes: &mut usize) -> Result<()> {
    match object.repr() {
        ObjectRepr::Seq | ObjectRepr::Iterable => {
            object.try_iter().into_iter().flatten().try_for_each(|item| add(&item, depth + 1, bytes))
        }
        ObjectRepr::Map => object.try_iter_pairs().into_iter().flatten().try_for_each(|(key, value)| {
            add(&key, depth + 1, bytes)?;
            add(&value, depth + 1, bytes)
        }),
        _ => Ok(()),
    }
}

/// Whether an object is one of those that the library changes in place; it does not export their types.
fn changes(object: &DynObject) -> bool {
    ["::Namespace", "::Loop"].iter().any(|end| object.type_name().ends_with(end))
}

/// A value that an operation made, measured and counted. `parts` says that its parts are new too. What would be computed
/// anew whenever it is looked at becomes a list.
pub fn count_value(value: Value, parts: bool) -> Result<Value> {
    if let Some(text) = value.as_str() {
        check_size(text.len())?;
        make(text.len())?;
        return Ok(value);
    }
    let Some(object) = value.as_object() else { return Ok(value) };
    let is_list = object.downcast_ref::<Vec<Value>>().is_some() || object.downcast_ref::<Tuple>().is_some();
    let lazy = matches!(value.kind(), ValueKind::Iterable | ValueKind::Seq) && !is_list;
    let value = if lazy { Value::from_object(collect(&value)?) } else { value };
    let bytes = measure(&value)?;
    make(if parts { bytes } else { NODE * value.len().unwrap_or(1) })?;
    Ok(value)
}

/// The items of what is computed lazily, up to the size of a value.
fn collect(value: &Value) -> Result<Vec<Value>> {
    let mut items = Vec::new();
    for item in value.try_iter()?.checked() {
        check_size((items.len() + 1) * NODE)?;
        items.push(item?);
    }
    Ok(items)
}

/// Bytes of a value as it is printed.
pub fn printed_len(value: &Value) -> Result<usize> {
    if let Some(text) = value.as_str() {
        return Ok(text.len());
    }
    measure(value)?;
    let mut text = Bounded { bytes: 0 };
    match write!(text, "{value}") {
        Ok(()) => Ok(text.bytes),
        Err(_) => check_size(text.bytes).map(|()| text.bytes),
    }
}

/// Counts what is written, up to the size of a value.
pub struct Bounded {
    pub bytes: usize,
}

impl std::fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.bytes += text.len();
        if self.bytes > VALUE { Err(std::fmt::Error) } else { Ok(()) }
    }
}
