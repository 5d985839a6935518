//! The outcome of a request: the answer, what it cost, or why there is none.

use serde_json::Value;

use super::error::{Diagnosis, ModelError};
use super::message::{Event, millis};
use super::response::{Metadata, Response, Usage};

/// What is noted of a run while it goes on.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) session_id: Option<String>,
    pub(super) unknown_messages: u64,
    /// What the model gave last as its structured output.
    structured_output: Option<Value>,
}

impl Notes {
    pub(super) fn take(&mut self, event: &Event) {
        match event {
            Event::Started(started) => self.session_id = Some(started.session_id.clone()),
            Event::ToolUse { name, input, .. } if name == "StructuredOutput" => {
                self.structured_output = Some(input.clone());
            }
            _ => {}
        }
    }

    /// What is known of a run that has no result.
    pub(super) fn diagnosis(&self, stderr: Vec<String>) -> Box<Diagnosis> {
        let session_id = self.session_id.clone();
        Box::new(Diagnosis { session_id, stderr, ..Diagnosis::default() })
    }

    /// The outcome of a run that has a result.
    pub(super) fn outcome(
        &self,
        result: Value,
        schema: Option<&Value>,
        stderr: Vec<String>,
    ) -> Result<(Response, Metadata), ModelError> {
        let text = |name: &str| result[name].as_str().map(str::to_owned);
        let diagnosis = Box::new(Diagnosis {
            subtype: text("subtype"),
            session_id: text("session_id").or_else(|| self.session_id.clone()),
            turns: result["num_turns"].as_u64(),
            duration: millis(&result["duration_ms"]),
            result: Some(result.clone()),
            stderr,
        });
        let is_error = result["is_error"] == true || result["subtype"] != "success";
        let structured_output = match schema.map(|schema| self.fitting(&result, schema)) {
            None => None,
            Some(Ok(output)) => Some(output),
            // The run failed for another reason.
            Some(Err(_)) if is_error => return Err(failed(&result, diagnosis)),
            Some(Err(why)) => return Err(ModelError::StructuredOutput { why, diagnosis }),
        };
        // A run that went on too long after it had given what was wanted has given it.
        if is_error && structured_output.is_none() {
            return Err(failed(&result, diagnosis));
        }
        let response = Response { text: text("result").unwrap_or_default(), structured_output };
        let metadata = Metadata {
            session_id: diagnosis.session_id.unwrap_or_default(),
            usage: usage(&result["usage"]),
            cost_usd: result["total_cost_usd"].as_f64(),
            turns: diagnosis.turns.unwrap_or_default(),
            duration: diagnosis.duration.unwrap_or_default(),
            api_duration: millis(&result["duration_api_ms"]),
            permission_denials: result["permission_denials"]
                .as_array()
                .cloned()
                .unwrap_or_default(),
            unknown_messages: self.unknown_messages,
            result,
        };
        Ok((response, metadata))
    }

    /// The structured output that fits the schema, from wherever the model has put it.
    fn fitting(&self, result: &Value, schema: &Value) -> Result<Value, String> {
        let validator = jsonschema::validator_for(schema)
            .map_err(|error| format!("the schema is not valid: {error}"))?;
        let of_text = result["result"].as_str().and_then(|text| serde_json::from_str(text).ok());
        let given =
            [result.get("structured_output").cloned(), self.structured_output.clone(), of_text];
        let given: Vec<_> = given.into_iter().flatten().filter(|value| !value.is_null()).collect();
        let mut why = "the model gave none".to_owned();
        for value in given.iter().flat_map(unwrapped) {
            match validator.validate(&value) {
                Ok(()) => return Ok(value),
                Err(error) => why = error.to_string(),
            }
        }
        Err(why)
    }
}

/// The value itself, and what is in it if it is a wrapper that models are known to add.
fn unwrapped(value: &Value) -> Vec<Value> {
    let inner = ["parameters", "parameter", "output"].iter().filter_map(|name| {
        match value.as_object().filter(|object| object.len() == 1)?.get(*name)? {
            Value::String(text) => serde_json::from_str(text).ok(),
            inner => Some(inner.clone()),
        }
    });
    [value.clone()].into_iter().chain(inner).collect()
}

fn failed(result: &Value, diagnosis: Box<Diagnosis>) -> ModelError {
    let errors = result["errors"].as_array().into_iter().flatten();
    let errors: Vec<_> = errors.filter_map(Value::as_str).collect();
    let message = match result["result"].as_str() {
        Some(text) if !text.is_empty() => text.to_owned(),
        _ if !errors.is_empty() => errors.join("; "),
        _ => "the CLI gave up and does not say why".to_owned(),
    };
    ModelError::Failed { message, diagnosis }
}

fn usage(usage: &Value) -> Usage {
    let count = |name: &str| usage[name].as_u64().unwrap_or_default();
    Usage {
        input_tokens: count("input_tokens"),
        output_tokens: count("output_tokens"),
        cache_creation_input_tokens: count("cache_creation_input_tokens"),
        cache_read_input_tokens: count("cache_read_input_tokens"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn outcome(
        notes: &Notes,
        result: Value,
        schema: Option<&Value>,
    ) -> Result<Response, ModelError> {
        notes.outcome(result, schema, Vec::new()).map(|(response, _)| response)
    }

    fn schema() -> Value {
        json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}})
    }

    #[test]
    fn a_result_that_says_error_is_one_whatever_its_subtype() {
        let result = json!({"subtype": "success", "is_error": true, "result": "API Error: 400"});
        let error = outcome(&Notes::default(), result, None).unwrap_err();
        assert_eq!(error.to_string(), "API Error: 400 (success)");
        let result = json!({"subtype": "error_max_turns", "errors": ["a", "b"], "num_turns": 2,
            "session_id": "s", "duration_ms": 1500});
        let error = outcome(&Notes::default(), result, None).unwrap_err();
        assert_eq!(error.to_string(), "a; b (error_max_turns, session s, 2 turns, 1.5 s)");
    }

    #[test]
    fn fields_that_are_missing_or_new_do_no_harm() {
        let result = json!({"subtype": "success", "result": "yes", "later": {"more": []}});
        let (response, metadata) = Notes::default().outcome(result, None, Vec::new()).unwrap();
        assert_eq!((response.text.as_str(), metadata.turns), ("yes", 0));
    }

    #[test]
    fn structured_output_is_found_where_the_model_put_it() {
        let check = |result: Value, noted: Option<Value>| {
            let notes = Notes { structured_output: noted, ..Notes::default() };
            outcome(&notes, result, Some(&schema())).unwrap().structured_output
        };
        let expected = Some(json!({"n": 7}));
        let success = |more: Value| {
            let mut result = json!({"subtype": "success"});
            result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            result
        };
        assert_eq!(check(success(json!({"structured_output": {"n": 7}})), None), expected);
        assert_eq!(check(success(json!({"result": "{\"n\": 7}"})), None), expected);
        let wrapped = json!({"structured_output": {"output": "{\"n\": 7}"}});
        assert_eq!(check(success(wrapped), None), expected);
        let failed = json!({"subtype": "error_max_turns", "is_error": true});
        assert_eq!(check(failed, Some(json!({"parameters": {"n": 7}}))), expected);
    }

    #[test]
    fn structured_output_that_does_not_fit_is_none() {
        let result = json!({"subtype": "success", "structured_output": {"n": "seven"}});
        let error = outcome(&Notes::default(), result, Some(&schema())).unwrap_err();
        assert!(matches!(error, ModelError::StructuredOutput { .. }), "{error}");
        let result = json!({"subtype": "success", "result": "words"});
        let error = outcome(&Notes::default(), result, Some(&schema())).unwrap_err();
        assert!(error.to_string().contains("the model gave none"), "{error}");
    }
}
