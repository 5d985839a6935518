//! What a tool gives back: content of every kind that MCP has, or a failure.

use std::any::Any;
use std::fmt::Display;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Map, Value};

/// A part of a result.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// Its bytes in base64.
        data: String,
        /// Its type, such as `image/png`.
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    /// Sound.
    Audio {
        /// Its bytes in base64.
        data: String,
        /// Its type, such as `audio/wav`.
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    /// Something that can be read elsewhere.
    ResourceLink {
        /// Where.
        uri: String,
        /// What it is called.
        name: String,
        /// Its type.
        #[serde(rename = "mimeType", skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
    /// Something that could be read elsewhere, with its content.
    Resource {
        /// What it is.
        resource: Resource,
    },
}

/// A resource with its content: text, or bytes in base64.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Resource {
    /// Where it is.
    pub uri: String,
    /// Its type.
    #[serde(rename = "mimeType", skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Its bytes in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
}

impl Content {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// An image with these bytes.
    pub fn image(bytes: &[u8], mime_type: impl Into<String>) -> Self {
        Self::Image { data: STANDARD.encode(bytes), mime_type: mime_type.into() }
    }

    /// Sound with these bytes.
    pub fn audio(bytes: &[u8], mime_type: impl Into<String>) -> Self {
        Self::Audio { data: STANDARD.encode(bytes), mime_type: mime_type.into() }
    }
}

/// The result of a tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ToolOutput {
    /// Its parts.
    pub content: Vec<Content>,
    /// The same for programs, where the tool has an output schema. Claude Code shows it instead of the text.
    #[serde(rename = "structuredContent", skip_serializing_if = "Option::is_none")]
    pub structured: Option<Map<String, Value>>,
    /// Whether the tool failed, so that the model sees it as an error.
    #[serde(rename = "isError", skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// More about the result, for the client.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

/// A tool failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// The kind of failure, a name such as `ToolExecutionError`.
    pub kind: String,
    /// What failed and what to do about it: the model reads it.
    pub message: String,
}

impl ToolError {
    /// A failure of the tool itself.
    pub fn new(message: impl Into<String>) -> Self {
        Self::of_kind("ToolExecutionError", message)
    }

    /// A failure of a kind of your own, such as `NotFoundError`.
    pub fn of_kind(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: kind.into(), message: message.into() }
    }
}

/// What can be the result of a tool: text, numbers, `()`, [`Json`], [`Content`] or several, [`ToolOutput`],
/// and `Option` and `Result` of these.
pub trait IntoToolOutput {
    /// The result.
    ///
    /// # Errors
    ///
    /// [`ToolError`] when the tool failed.
    fn into_output(self) -> Result<ToolOutput, ToolError>;
}

/// A value that is given back as JSON: as text, and for programs if it is an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<T>(
    /// The value.
    pub T,
);

impl<T: Serialize> IntoToolOutput for Json<T> {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        let failed = |error| ToolError::new(format!("the result is no JSON: {error}"));
        let value = serde_json::to_value(self.0).map_err(failed)?;
        let content = vec![Content::text(value.to_string())];
        let structured = match value {
            Value::Object(object) => Some(object),
            _ => None,
        };
        Ok(ToolOutput { content, structured, ..ToolOutput::default() })
    }
}

impl IntoToolOutput for ToolOutput {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        Ok(self)
    }
}

impl IntoToolOutput for Vec<Content> {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput { content: self, ..ToolOutput::default() })
    }
}

impl IntoToolOutput for Content {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        vec![self].into_output()
    }
}

impl IntoToolOutput for () {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::default())
    }
}

impl<T: IntoToolOutput> IntoToolOutput for Option<T> {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        self.map_or_else(|| ().into_output(), T::into_output)
    }
}

impl<T: IntoToolOutput, E: Display + 'static> IntoToolOutput for Result<T, E> {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        let tool_error = |error: &E| (error as &dyn Any).downcast_ref::<ToolError>().cloned();
        let failed =
            |error: E| tool_error(&error).unwrap_or_else(|| ToolError::new(error.to_string()));
        self.map_err(failed)?.into_output()
    }
}

macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl IntoToolOutput for $type {
            fn into_output(self) -> Result<ToolOutput, ToolError> {
                Content::text(self.to_string()).into_output()
            }
        }
    )*};
}

as_text!(String, &str, bool, i8, i16, i32, i64, isize, u8, u16, u32, u64, usize, f32, f64);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(output: impl IntoToolOutput, expected: impl Into<Value>) {
        let given = serde_json::to_value(output.into_output().unwrap()).unwrap();
        assert_eq!(given, expected.into());
    }

    #[test]
    fn what_a_tool_gives_becomes_content() {
        check("hello", json!({"content": [{"type": "text", "text": "hello"}]}));
        check(42, json!({"content": [{"type": "text", "text": "42"}]}));
        check((), json!({"content": []}));
        check(None::<String>, json!({"content": []}));
        check(
            Json(json!({"n": 1})),
            json!({"content": [{"type": "text", "text": "{\"n\":1}"}], "structuredContent": {"n": 1}}),
        );
        check(
            vec![Content::text("a"), Content::image(b"\x89PNG", "image/png")],
            json!({"content": [
                {"type": "text", "text": "a"},
                {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
            ]}),
        );
        let link = Content::ResourceLink { uri: "a:b".into(), name: "n".into(), mime_type: None };
        check(link, json!({"content": [{"type": "resource_link", "uri": "a:b", "name": "n"}]}));
        let failed = ToolOutput { is_error: true, ..ToolOutput::default() };
        check(failed, json!({"content": [], "isError": true}));
    }

    #[test]
    fn an_error_says_what_failed() {
        let failed: Result<String, std::fmt::Error> = Err(std::fmt::Error);
        let error = failed.into_output().unwrap_err();
        assert_eq!(error.kind, "ToolExecutionError");
        assert!(error.message.contains("formatt"), "{error}");
        let own = ToolError::of_kind("NotFoundError", "no such row");
        assert_eq!(Err::<(), _>(own.clone()).into_output(), Err(own));
    }
}
