//! The schema file: what tools there are, for a bridge that has yet to meet their program.
//!
//! A JSON array of `{"name", "description", "input_schema"}`. Entries may have more: `title`,
//! `output_schema`, `annotations`, `icons` and `_meta` reach the client, and `answers_by_id` says that the
//! program tells the answers of calls apart, so that several may be under way.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use pontoon_wire::{json, quoted};
use rustix::fs::{Mode, OFlags, open};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The largest schema file that is read.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Why a schema file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SchemaFileError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It is a folder, a pipe or something else.
    #[error("is not a file")]
    NotAFile,
    /// It is larger than it may be.
    #[error("is larger than {MAX_BYTES} bytes")]
    TooLarge,
    /// It is not what it should be.
    #[error("is not a JSON array of {{\"name\", \"description\", \"input_schema\"}}: {0}")]
    Json(#[from] serde_json::Error),
    /// A schema is not an object.
    #[error("the input_schema of `{0}` is not an object")]
    Schema(String),
    /// Two tools have one name.
    #[error("there are two tools `{0}`")]
    Twice(String),
}

/// The tools of a schema file.
#[derive(Debug)]
pub(crate) struct SchemaFile {
    /// As `tools/list` gives them: a JSON array.
    pub(crate) tools: String,
    /// Whether the program tells the answers of calls apart.
    pub(crate) answers_by_id: bool,
}

#[derive(Deserialize)]
struct Entry<'f> {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(borrow)]
    input_schema: &'f RawValue,
    #[serde(borrow, default)]
    title: Option<&'f RawValue>,
    #[serde(borrow, default)]
    output_schema: Option<&'f RawValue>,
    #[serde(borrow, default)]
    annotations: Option<&'f RawValue>,
    #[serde(borrow, default)]
    icons: Option<&'f RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'f RawValue>,
    #[serde(default)]
    answers_by_id: bool,
}

impl SchemaFile {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// [`SchemaFileError`] says what is wrong with it.
    pub(crate) fn read(path: &Path) -> Result<Self, SchemaFileError> {
        // Without waiting: a pipe without a writer would keep us for ever.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(open(path, flags, Mode::empty()).map_err(io::Error::from)?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(SchemaFileError::NotAFile);
        }
        let mut text = Vec::with_capacity(metadata.len().min(MAX_BYTES) as usize + 1);
        file.take(MAX_BYTES + 1).read_to_end(&mut text)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(SchemaFileError::TooLarge);
        }
        Self::parse(&text)
    }

    /// Reads its text.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, SchemaFileError> {
        let entries: Vec<Entry<'_>> = serde_json::from_slice(text)?;
        let mut names = HashSet::new();
        let mut tools = Vec::with_capacity(entries.len());
        for entry in &entries {
            if !names.insert(entry.name.as_str()) {
                return Err(SchemaFileError::Twice(entry.name.clone()));
            }
            tools.push(entry.to_tool()?);
        }
        let answers_by_id = !entries.is_empty() && entries.iter().all(|entry| entry.answers_by_id);
        // Between its tokens JSON may have new lines, and a message may not.
        let tools = format!("[{}]", tools.join(",")).replace(['\n', '\r'], " ");
        Ok(Self { tools, answers_by_id })
    }
}

impl Entry<'_> {
    /// The tool as `tools/list` gives it.
    fn to_tool(&self) -> Result<String, SchemaFileError> {
        let schema = self.input_schema.get();
        if !schema.starts_with('{') {
            return Err(SchemaFileError::Schema(self.name.clone()));
        }
        // Without this a client refuses the whole list.
        let is_typed = json::find(schema.as_bytes(), "type").is_some();
        let schema = match (is_typed, schema[1..].trim_start().starts_with('}')) {
            (true, _) => schema.to_owned(),
            (false, true) => "{\"type\":\"object\"}".to_owned(),
            (false, false) => format!("{{\"type\":\"object\",{}", &schema[1..]),
        };
        let mut tool = format!(
            "{{\"name\":{},\"description\":{},\"inputSchema\":{schema}",
            quoted(&self.name),
            quoted(&self.description)
        );
        for (name, value) in [
            ("title", self.title),
            ("outputSchema", self.output_schema),
            ("annotations", self.annotations),
            ("icons", self.icons),
            ("_meta", self.meta),
        ] {
            if let Some(value) = value.filter(|value| value.get() != "null") {
                tool += &format!(",\"{name}\":{}", value.get());
            }
        }
        tool.push('}');
        Ok(tool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, tools: &str, answers_by_id: bool) {
        let file = SchemaFile::parse(text.as_bytes()).unwrap();
        assert_eq!((file.tools.as_str(), file.answers_by_id), (tools, answers_by_id));
    }

    fn check_refused(text: &str, expected: &str) {
        let error = SchemaFile::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn an_entry_becomes_a_tool_on_one_line() {
        check("[]", "[]", false);
        check(
            "[\n {\"name\": \"a\\n\", \"description\": \"d\",\n  \"input_schema\": {\n \"type\": \"object\"}}]",
            r#"[{"name":"a\n","description":"d","inputSchema":{  "type": "object"}}]"#,
            false,
        );
        check(
            r#"[{"name":"a","input_schema":{},"title":"T","annotations":{"readOnlyHint":true},"output_schema":null,"_meta":{"k":1},"answers_by_id":true,"new":1}]"#,
            r#"[{"name":"a","description":"","inputSchema":{"type":"object"},"title":"T","annotations":{"readOnlyHint":true},"_meta":{"k":1}}]"#,
            true,
        );
        check(
            r#"[{"name":"a","input_schema":{"properties":{}}}]"#,
            r#"[{"name":"a","description":"","inputSchema":{"type":"object","properties":{}}}]"#,
            false,
        );
    }

    #[test]
    fn what_is_no_schema_file_is_refused() {
        check_refused("{}", "is not a JSON array");
        check_refused("[1]", "is not a JSON array");
        check_refused(r#"[{"name":"a"}]"#, "missing field `input_schema`");
        check_refused(
            r#"[{"name":"a","input_schema":[]}]"#,
            "the input_schema of `a` is not an object",
        );
        let twice = r#"{"name":"a","input_schema":{}}"#;
        check_refused(&format!("[{twice},{twice}]"), "two tools `a`");
    }

    #[test]
    fn only_a_file_is_read() {
        let place = tempfile::tempdir().unwrap();
        assert!(matches!(SchemaFile::read(place.path()), Err(SchemaFileError::NotAFile)));
        let missing = SchemaFile::read(&place.path().join("none")).unwrap_err();
        assert!(matches!(missing, SchemaFileError::Read(_)), "{missing}");
    }
}
