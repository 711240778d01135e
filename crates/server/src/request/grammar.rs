//! Structured output: the form that an answer must have.

use crate::error::ApiError;
use crate::fields::{Fields, Parsed};
use tapml_constraint::{FORM_FIELDS, FormFault, FormFaultKind, Grammar, RequestedForm, read_form};

/// Names of the fields that this file reads.
pub const NAMES: &[&str] = FORM_FIELDS;

/// The form, if one is wanted, with the field that says so.
pub fn read(fields: &Fields<'_>) -> Parsed<Option<(&'static str, Grammar)>> {
    let found = read_form(|name| fields.optional(name))?;
    Ok(found.map(|RequestedForm { field, grammar }| (field, grammar)))
}

impl From<FormFault> for ApiError {
    fn from(FormFault { place, kind, error }: FormFault) -> ApiError {
        let field = |code| ApiError::bad_field(&place, error.to_string()).with_code(code);
        match kind {
            FormFaultKind::Type => field("invalid_type"),
            FormFaultKind::Value => field("invalid_value"),
            FormFaultKind::Missing => field("missing_required_parameter"),
            FormFaultKind::Unsupported => ApiError::unsupported_field(&place, error.to_string()),
            FormFaultKind::Grammar => ApiError::from(error).with_param(&place),
        }
    }
}
