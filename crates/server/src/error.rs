//! Errors in the shapes that clients of OpenAI and Anthropic read.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tapml_engine::SubmitError;
use tapml_graph::{Error, ErrorKind};

/// Seconds after which a client that was refused for want of room may come again.
const RETRY_SECONDS: u32 = 1;

/// Why a request is not served.
#[derive(Clone, Debug)]
pub struct ApiError {
    /// The status of HTTP.
    pub status: StatusCode,
    /// For people.
    message: String,
    /// The field that is wrong.
    param: Option<String>,
    /// For programs.
    code: Option<&'static str>,
    /// Tokens of a prompt, and of the context that it exceeds.
    sizes: Option<(usize, usize)>,
}

impl ApiError {
    /// A refusal with this status.
    pub fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), param: None, code: None, sizes: None }
    }

    /// The request as a whole is wrong.
    pub fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    /// A field is wrong.
    pub fn bad_field(param: &str, message: impl Into<String>) -> ApiError {
        ApiError::bad_request(message).with_param(param)
    }

    /// A field asks for what is not served.
    pub fn unsupported_field(param: &str, message: impl Into<String>) -> ApiError {
        ApiError::bad_field(param, message).with_code("unsupported_parameter")
    }

    /// The server has failed.
    pub fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// The server ends.
    pub fn stopping() -> ApiError {
        let text = "the server is shutting down; send the request to another one, or again later";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, text).with_code("shutting_down")
    }

    /// No request can be computed.
    pub fn fault(fault: &Error) -> ApiError {
        let text = format!("the model cannot run, which is tried again: {}", text_with_hint(fault));
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, text).with_code("model_unavailable")
    }

    /// There is no room for a request.
    pub fn overload_error(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).with_code("server_overloaded")
    }

    /// Names the field that is wrong.
    pub fn with_param(mut self, param: &str) -> ApiError {
        self.param = Some(param.into());
        self
    }

    /// A word for programs.
    pub fn with_code(mut self, code: &'static str) -> ApiError {
        self.code = Some(code);
        self
    }

    /// The prompt exceeds the context.
    pub fn context_error(param: &str, tokens: usize, context: usize) -> ApiError {
        let text = format!(
            "`{param}` has {tokens} tokens and exceeds the available context size of {context}; shorten it"
        );
        let error = ApiError::bad_field(param, text).with_code("context_length_exceeded");
        ApiError { sizes: Some((tokens, context)), ..error }
    }

    /// Tells fields under the names that they have in the body that a chat was made of.
    pub fn rename_param(mut self, names: &[(&str, &str)]) -> ApiError {
        let Some(param) = &self.param else { return self };
        let root = param.split(['.', '[']).next().unwrap_or_default();
        if let Some((from, to)) = names.iter().find(|(from, _)| *from == root) {
            self.message = self.message.replace(&format!("`{from}"), &format!("`{to}"));
            self.param = Some(format!("{to}{}", &param[root.len()..]));
        }
        self
    }

    /// What OpenAI calls errors of this status.
    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// The body of the answer, which is also what a stream ends with.
    pub fn body(&self) -> Value {
        let ApiError { message, param, code, .. } = self;
        let mut error = json!({ "message": message, "type": self.kind(), "param": param, "code": code });
        if let Some((tokens, context)) = self.sizes {
            // As llama-server tells them.
            error["n_prompt_tokens"] = tokens.into();
            error["n_ctx"] = context.into();
        }
        json!({ "error": error })
    }
}

/// The error in Anthropic's shape, whose message names the field.
pub fn anthropic_body(error: &ApiError) -> Value {
    let kind = match error.status {
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        status if status.is_server_error() => "api_error",
        _ => error.kind(),
    };
    let message = match &error.param {
        Some(param) if !error.message.contains(&format!("`{param}")) => {
            format!("`{param}`: {}", error.message)
        }
        _ => error.message.clone(),
    };
    json!({ "type": "error", "error": { "type": kind, "message": message } })
}

impl From<Error> for ApiError {
    /// With the advice behind the message.
    fn from(error: Error) -> ApiError {
        let status = match error.kind() {
            ErrorKind::InvalidInput | ErrorKind::Unsupported => StatusCode::BAD_REQUEST,
            ErrorKind::Unavailable | ErrorKind::OutOfMemory | ErrorKind::DeviceLost => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        ApiError::new(status, text_with_hint(&error))
    }
}

impl From<ApiError> for Error {
    /// For who asks in the same process.
    fn from(error: ApiError) -> Error {
        let kind = match error.status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => ErrorKind::Unavailable,
            status if status.is_server_error() => ErrorKind::Bug,
            _ => ErrorKind::InvalidInput,
        };
        Error::new(kind, error.message)
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> ApiError {
        match error {
            SubmitError::Invalid(error) => ApiError::bad_request(text_with_hint(&error)),
            SubmitError::QueueFull(error) => ApiError::overload_error(text_with_hint(&error)),
            SubmitError::ShuttingDown(_) => ApiError::stopping(),
        }
    }
}

fn text_with_hint(error: &Error) -> String {
    match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let kind = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut response = (self.status, [kind], self.body().to_string()).into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, RETRY_SECONDS.into());
            }
            _ => {}
        }
        // Paths of another API write it anew.
        response.extensions_mut().insert(self);
        response
    }
}
