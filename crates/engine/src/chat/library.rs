//! The filters, tests, functions and methods that templates have, each with a look at what a call may cost before it runs and
//! at what it made afterwards. Calls by name at run time (`map("replace", …)`) come through here as well.
//!
//! A row names a function and how its cost grows; the function itself is the library's. Costs are estimates
//! from above: a template of a chat stays far below them.

use super::budget::{self, Result};
use super::json;
use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters as f, functions, tests as t};
use minijinja_contrib::pycompat;

/// What the cost of a call grows with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cost {
    /// The length of a text: the call looks at one value and makes none.
    Constant,
    /// Its arguments; the parts of its result are values that exist.
    Shares,
    /// Its arguments; all of its result is new.
    Makes,
    /// Characters taken from the ends of a text.
    Strips,
    /// Length of the text in its place for each match.
    Replaces,
    /// Length of the separator for each item.
    Separators,
    /// Widths in the format, and arguments for each place.
    Formats,
    /// The width for each line.
    Indents,
    /// A count that is given.
    Counts,
    /// Depth of the values for each of them.
    Displays,
}

/// The largest width or count that a call may be given.
const COUNT: u64 = 100_000;
/// The largest width in a format, in decimal digits.
const WIDTH_DIGITS: usize = 4;

/// Bytes of a format for a time.
const MAX_TIME_FORMAT: usize = 256;

/// Adds everything that templates may call.
pub fn add_library(environment: &mut Environment) {
    macro_rules! filters {
        ($($cost:ident: $($name:literal $function:expr),+;)+) => {
            $($(add_filter(environment, $name, Cost::$cost, Value::from_function($function));)+)+
        };
    }
    filters! {
        Constant: "length" f::length, "count" f::length, "default" f::default, "d" f::default, "first" f::first, "last" f::last,
            "attr" f::attr, "round" f::round, "abs" f::abs, "bool" f::bool;
        Shares: "dictsort" f::dictsort, "items" f::items, "min" f::min, "max" f::max, "sort" f::sort,
            "list" f::list, "reverse" f::reverse, "select" f::select, "reject" f::reject, "selectattr" f::selectattr,
            "rejectattr" f::rejectattr, "groupby" f::groupby, "unique" f::unique, "chain" f::chain, "zip" f::zip;
        Makes: "safe" f::safe, "escape" f::escape, "e" f::escape, "lower" f::lower, "upper" f::upper, "title" f::title,
            "capitalize" f::capitalize, "split" f::split, "lines" f::lines, "string" f::string, "map" f::map,
            "int" f::int, "float" f::float, "tojson" json::to_json, "sum" sum;
        Strips: "trim" f::trim;
        Replaces: "replace" f::replace;
        Separators: "join" f::join;
        Formats: "format" f::format;
        Indents: "indent" f::indent;
        Counts: "batch" f::batch, "slice" f::slice;
        Displays: "pprint" f::pprint;
    }
    macro_rules! tests {
        ($($name:literal $function:expr),+) => {
            $(add_test(environment, $name, Value::from_function($function));)+
        };
    }
    // The other tests look at a value's kind.
    tests! {
        "eq" t::is_eq, "equalto" t::is_eq, "==" t::is_eq, "ne" t::is_ne, "!=" t::is_ne, "lt" t::is_lt, "lessthan" t::is_lt,
        "<" t::is_lt, "le" t::is_le, "<=" t::is_le, "gt" t::is_gt, "greaterthan" t::is_gt, ">" t::is_gt, "ge" t::is_ge,
        ">=" t::is_ge, "in" t::is_in, "startingwith" t::is_startingwith, "endingwith" t::is_endingwith,
        "lower" t::is_lower, "upper" t::is_upper, "sameas" t::is_sameas, "iterable" is_iterable
    }
    environment.add_function("strftime_now", strftime_now);
    // It prints every variable.
    environment.remove_global("debug");
    for (name, function) in [
        ("range", Value::from_function(functions::range)),
        ("dict", Value::from_function(functions::dict)),
        ("namespace", Value::from_function(functions::namespace)),
    ] {
        environment.add_function(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
            call(&function, Cost::Shares, state, &args.into_values())
        });
    }
    environment.set_unknown_method_callback(|state, value, method, args| {
        let cost = method_cost(method);
        let all: Vec<Value> = std::iter::once(value).chain(args).cloned().collect();
        check(cost, &all)?;
        let made = pycompat::unknown_method_callback(state, value, method, args)?;
        count(cost, &all, made)
    });
}

/// The cost of a method of Python's types.
fn method_cost(method: &str) -> Cost {
    match method {
        "get" => Cost::Constant,
        "keys" | "values" | "items" => Cost::Shares,
        "strip" | "lstrip" | "rstrip" => Cost::Strips,
        "replace" => Cost::Replaces,
        "join" => Cost::Separators,
        "format" => Cost::Formats,
        _ => Cost::Makes,
    }
}

/// A filter whose calls are checked and counted.
fn add_filter(environment: &mut Environment, name: &'static str, cost: Cost, original: Value) {
    environment.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
        call(&original, cost, state, &args.into_values())
    });
}

/// A test whose arguments are measured.
fn add_test(environment: &mut Environment, name: &'static str, original: Value) {
    environment.add_test(name, move |state: &mut State, args: Rest<ValueOrKwargs>| -> Result<bool> {
        let args = args.into_values();
        check(Cost::Makes, &args)?;
        Ok(original.call(state, &args)?.is_true())
    });
}

/// Check, call, count.
fn call(original: &Value, cost: Cost, state: &mut State, args: &[Value]) -> Result<Value> {
    check(cost, args)?;
    let made = original.call(state, args)?;
    count(cost, args, made)
}

/// Counts what a call made.
fn count(cost: Cost, args: &[Value], made: Value) -> Result<Value> {
    let of_text = args.first().is_some_and(|first| first.as_str().is_some());
    match cost {
        Cost::Constant => Ok(made),
        Cost::Shares if !of_text => budget::count_value(made, false),
        _ => budget::count_value(made, true),
    }
}

/// Fails if a call with these arguments would cost too much.
fn check(cost: Cost, args: &[Value]) -> Result<()> {
    if cost == Cost::Constant {
        // The length of a text is counted.
        return budget::work(args.first().and_then(Value::as_str).map_or(0, str::len) / 64);
    }
    let sizes = args.iter().map(budget::measure).collect::<Result<Vec<usize>>>()?;
    let size = |at: usize| sizes.get(at).copied().unwrap_or(0);
    let total: usize = sizes.iter().sum();
    let len = |at: usize| args.get(at).map_or(Ok(0), budget::printed_len);
    match cost {
        // Sorting compares an item some twenty times, by each of the attributes in a text.
        Cost::Shares => {
            let items = args.first().and_then(Value::len).unwrap_or(0);
            let names: usize = args.iter().skip(1).map(budget::printed_len).sum::<Result<usize>>()?;
            budget::work((total / 4).saturating_add(items.saturating_mul(names) / 4))
        }
        Cost::Strips => budget::work(len(0)?.saturating_mul(len(1)?) / 64),
        Cost::Replaces => {
            let text = args.first().map(Value::to_string).unwrap_or_default();
            let from = args.get(1).map(Value::to_string).unwrap_or_default();
            budget::check_size(
                text.len().saturating_add(text.matches(&*from).count().saturating_mul(len(2)?)),
            )
        }
        // A method has the separator first, the filter has the items first.
        Cost::Separators => {
            let items = |at: usize| args.get(at).and_then(Value::len).unwrap_or(0);
            let separators =
                items(0).max(1).saturating_mul(size(1)) + items(1).max(1).saturating_mul(size(0));
            let by_text = args.first().is_some_and(|first| first.as_str().is_some());
            let separators = if by_text { items(1).saturating_mul(len(0)?) } else { separators };
            budget::check_size(separators)
        }
        Cost::Formats => check_format(args, total),
        Cost::Indents => {
            let text = args.first().map(Value::to_string).unwrap_or_default();
            let width = largest_count(args)?.max(4);
            budget::check_size(
                text.len().saturating_add((text.matches('\n').count() + 1).saturating_mul(width)),
            )
        }
        Cost::Counts => largest_count(args).map(drop),
        Cost::Displays => budget::check_size(total.saturating_mul(4)),
        Cost::Constant | Cost::Makes => Ok(()),
    }
}

/// The largest whole number behind the first argument, keywords included; fails if it is beyond [`COUNT`].
fn largest_count(args: &[Value]) -> Result<usize> {
    let mut largest = 0;
    for arg in args.iter().skip(1) {
        let named = keywords(arg);
        let values =
            named.iter().flat_map(|named| named.args().filter_map(|name| named.peek::<Value>(name).ok()));
        for value in values.chain([arg.clone()]) {
            let count = value.as_i64().map_or(0, i64::unsigned_abs);
            if count > COUNT || (value.is_number() && value.as_i64().is_none()) {
                return Err(refuse(format!("a width or count of {value} is more than {COUNT}")));
            }
            largest = largest.max(count as usize);
        }
    }
    Ok(largest)
}

/// The named arguments, if this is what holds them.
fn keywords(arg: &Value) -> Option<Kwargs> {
    if arg.is_kwargs() { Kwargs::try_from(arg.clone()).ok() } else { None }
}

/// Widths, keys and the number of places of a format.
fn check_format(args: &[Value], total: usize) -> Result<()> {
    let format = args.first().map(Value::to_string).unwrap_or_default();
    let wide = format.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > WIDTH_DIGITS);
    if wide || format.contains('*') {
        return Err(refuse(format!("widths in a format must have at most {WIDTH_DIGITS} digits")));
    }
    // The library goes through a key byte by byte, and ends in a panic within a character.
    let key = |text: &str, [open, close]: [&str; 2]| {
        let mut keys = text.split(open).skip(1).map(|rest| rest.split(close).next().unwrap_or(rest));
        keys.any(|key| !key.is_ascii())
    };
    let places = || format.split('{').skip(1).map(|rest| rest.split('}').next().unwrap_or(rest));
    if key(&format.replace("%%", ""), ["%(", ")"]) || places().any(|place| key(place, ["[", "]"])) {
        return Err(refuse("keys in a format must be ASCII".into()));
    }
    let places = format.matches(['%', '{']).count();
    budget::check_size(places.saturating_mul(total.saturating_add(10_000)))
}

/// `sum` without texts, which would be copied for each item.
fn sum(state: &mut State, args: Rest<ValueOrKwargs>) -> Result<Value> {
    let args = args.into_values();
    let start = args.last().and_then(keywords).and_then(|named| named.peek::<Value>("start").ok());
    if args.iter().skip(2).chain(&start).any(|start| start.kind() == ValueKind::String) {
        return Err(refuse("`sum` adds numbers; `join` puts texts together".into()));
    }
    Value::from_function(f::sum).call(state, &args)
}

/// As in Jinja2: a text is, and what is undefined, but not `none`.
fn is_iterable(value: &Value) -> bool {
    let kind = value.kind();
    value.is_undefined()
        || matches!(kind, ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Iterable)
}

/// The local time in a format of C's `strftime`.
fn strftime_now(format: &str) -> Result<String> {
    if format.len() > MAX_TIME_FORMAT {
        return Err(refuse(format!("a format of a time has more than {MAX_TIME_FORMAT} bytes")));
    }
    jiff::fmt::strtime::format(format, &jiff::Zoned::now())
        .map_err(|e| refuse(format!("`{format}` is no format of a time: {e}")))
}

/// An error that the template sees.
fn refuse(why: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}
