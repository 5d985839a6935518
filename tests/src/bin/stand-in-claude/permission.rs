//! Whether a tool may be called: by an option, by the starter's word, or not at all.

use serde_json::{Value, json};

use crate::Cli;

impl Cli {
    /// The input with which a tool may be called, or why it may not.
    pub(crate) fn permitted(&self, tool: &str, input: &Value, id: &str) -> Result<Value, String> {
        if self.options.allows(tool) {
            return Ok(input.clone());
        }
        if !self.options.asks {
            return Err(format!(
                "Claude requested permissions to use {tool}, but you haven't granted it yet."
            ));
        }
        let answer = self
            .ask(&json!({"subtype": "can_use_tool", "tool_name": tool, "input": input,
            "display_name": tool, "permission_suggestions": [], "tool_use_id": id}))?;
        if answer["behavior"] == "allow" {
            let changed = answer.get("updatedInput").filter(|it| it.is_object());
            return Ok(changed.unwrap_or(input).clone());
        }
        Err(answer["message"].as_str().unwrap_or("denied without a word").to_owned())
    }
}
