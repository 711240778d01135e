//! The fields of a request's body: only known ones are kept, each is read to its type, and an error names the field.
//!
//! A body is a stranger's. What is kept of it are places in its text, so that a body takes no more memory than it has
//! bytes until a field is read to a type of bounded size.

use crate::error::ApiError;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;

/// Result of a look at a request.
pub type Parsed<T> = Result<T, ApiError>;

/// The known fields of a body.
#[derive(Debug)]
pub struct Fields<'a> {
    values: HashMap<&'static str, &'a RawValue>,
}

/// Reads an object and keeps the fields of these names.
struct KnownFields(&'static [&'static [&'static str]]);

impl<'a> Visitor<'a> for KnownFields {
    type Value = HashMap<&'static str, &'a RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = HashMap::new();
        while let Some(key) = map.next_key::<Cow<'a, str>>()? {
            match self.0.iter().copied().flatten().find(|name| **name == key) {
                Some(name) => {
                    values.insert(*name, map.next_value()?);
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(values)
    }
}

impl<'a> Fields<'a> {
    /// The fields of these names in a body, which is an object of JSON. Others are ignored, and of equal names the last counts.
    pub fn parse(body: &'a [u8], known: &'static [&'static [&'static str]]) -> Parsed<Fields<'a>> {
        let mut reader = serde_json::Deserializer::from_slice(body);
        let values =
            reader.deserialize_map(KnownFields(known)).and_then(|values| reader.end().map(|()| values));
        let values = values.map_err(|e| {
            ApiError::bad_request(format!("the body is no JSON object: {e}")).with_code("invalid_json")
        })?;
        Ok(Fields { values })
    }

    /// The text of a field as it stands in the body; `None` for null.
    pub fn raw(&self, name: &str) -> Option<&'a str> {
        self.values.get(name).map(|raw| raw.get()).filter(|text| *text != "null")
    }

    /// A field of this type; `None` if it is not there or null.
    pub fn optional<T: Deserialize<'a>>(&self, name: &str) -> Parsed<Option<T>> {
        let Some(text) = self.raw(name) else { return Ok(None) };
        serde_json::from_str(text).map(Some).map_err(|e| type_error(name, &e))
    }

    /// A field that must be there.
    pub fn expect_field<T: Deserialize<'a>>(&self, name: &str) -> Parsed<T> {
        self.optional(name)?.ok_or_else(|| {
            ApiError::bad_field(name, format!("`{name}` is missing")).with_code("missing_required_parameter")
        })
    }

    /// A number within bounds.
    pub fn number(&self, name: &str, bounds: RangeInclusive<f32>) -> Parsed<Option<f32>> {
        let found: Option<f32> = self.optional(name)?;
        match found {
            Some(value) if !bounds.contains(&value) => Err(range_error(name, &bounds, value)),
            found => Ok(found),
        }
    }

    /// A whole number within bounds.
    pub fn integer(&self, name: &str, bounds: RangeInclusive<i64>) -> Parsed<Option<i64>> {
        let found: Option<i64> = self.optional(name)?;
        match found {
            Some(value) if !bounds.contains(&value) => Err(range_error(name, &bounds, value)),
            found => Ok(found),
        }
    }

    /// A whole number from `least` on.
    pub fn count(&self, name: &str, least: usize) -> Parsed<Option<usize>> {
        let found = self.integer(name, i64::try_from(least).unwrap_or(i64::MAX)..=i64::from(u32::MAX))?;
        Ok(found.and_then(|value| usize::try_from(value).ok()))
    }

    /// A flag; false if it is not there.
    pub fn flag(&self, name: &str) -> Parsed<bool> {
        Ok(self.optional(name)?.unwrap_or(false))
    }

    /// Fails if one of these is there with another value than one that changes nothing.
    pub fn refuse(&self, unsupported: &[Unsupported]) -> Parsed<()> {
        for Unsupported { name, neutral, advice } in unsupported {
            match self.raw(name) {
                Some(text) if !neutral.contains(&text) => {
                    let message = format!("`{name}` is not supported; {advice}");
                    return Err(ApiError::unsupported_field(name, message));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A field that is known and not served.
#[derive(Clone, Copy, Debug)]
pub struct Unsupported {
    /// Its name.
    pub name: &'static str,
    /// Its values, as JSON, that change nothing.
    pub neutral: &'static [&'static str],
    /// What to do instead.
    pub advice: &'static str,
}

fn range_error<T: fmt::Display>(name: &str, bounds: &RangeInclusive<T>, found: T) -> ApiError {
    let (least, most) = (bounds.start(), bounds.end());
    let text = format!("`{name}` must be from {least} to {most}, found {found}");
    ApiError::bad_field(name, text).with_code("invalid_value")
}

/// The place that the library tells is one within the field.
fn type_error(name: &str, error: &serde_json::Error) -> ApiError {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    ApiError::bad_field(name, format!("`{name}` is wrong: {text}")).with_code("invalid_type")
}
