//! One tool as an operation of an OpenAPI document.

use pontoon_schema::{RequestBody, capitalised};
use pontoon_wire::{json, quoted, string_value};

use super::titles::Names;

/// A tool, and what its document says of it.
pub(super) struct Operation<'t> {
    /// The name that its server has for it.
    pub name: &'t str,
    /// The server it is of, where a document is of several.
    group: &'t str,
    id: String,
    /// What the names of its schemas begin with.
    component: String,
    description: Option<&'t [u8]>,
    output: Option<RequestBody>,
}

/// The schemas that operations share, as mcpo writes them.
pub(super) const ERRORS: &str = concat!(
    r##""HTTPValidationError":{"properties":{"detail":{"items":{"$ref":"#/components/schemas/ValidationError"},"##,
    r##""type":"array","title":"Detail"}},"type":"object","title":"HTTPValidationError"},"##,
    r##""ValidationError":{"properties":{"loc":{"items":{"anyOf":[{"type":"string"},{"type":"integer"}]},"##,
    r##""type":"array","title":"Location"},"msg":{"type":"string","title":"Message"},"##,
    r##""type":{"type":"string","title":"Error Type"}},"type":"object","required":["loc","msg","type"],"title":"ValidationError"}"##,
);

impl<'t> Operation<'t> {
    /// The operation of the tool of this name, a JSON text. Its id and the names of its schemas are told apart from those of
    /// others by `ids` and `components`.
    pub(super) fn of(
        name: &'t str,
        tool: &'t str,
        group: &'t str,
        ids: &mut Names,
        components: &mut Names,
    ) -> Self {
        let member = |name| json::find(tool.as_bytes(), name);
        let output = member("outputSchema").and_then(|raw| std::str::from_utf8(raw).ok());
        let output = output.filter(|raw| raw.starts_with('{'));
        let full = grouped(group, name, "_");
        Self {
            id: ids.add(&full),
            component: components.add(&full),
            group,
            description: member("description").filter(|raw| raw.first() == Some(&b'"')),
            output: output.map(|schema| RequestBody::of(schema, &format!("{name}_response_model"))),
            name,
        }
    }

    /// Its path and what can be done there, as members of `paths`.
    pub(super) fn path(&self, body: Option<&RequestBody>, wants_key: bool) -> String {
        let body = body.filter(|body| body.is_needed());
        let description = self.described(body).map(|it| format!("\"description\":{it},"));
        let request = body.map(|_| {
            let schema = self.reference("form_model");
            format!(
                "\"requestBody\":{{\"content\":{{\"application/json\":{{\"schema\":{schema}}}}},\"required\":true}},"
            )
        });
        let refused = body.map(|_| {
            ",\"422\":{\"description\":\"Validation Error\",\"content\":{\"application/json\":{\"schema\":{\"$ref\":\"#/components/schemas/HTTPValidationError\"}}}}"
        });
        // A document of several servers keeps them apart.
        let tags = match self.group {
            "" => String::new(),
            group => format!("\"tags\":[{}],", quoted(group)),
        };
        let security = if wants_key { ",\"security\":[{\"HTTPBearer\":[]}]" } else { "" };
        format!(
            "{}:{{\"post\":{{{tags}\"summary\":{},{}\"operationId\":{},{}\"responses\":{{\"200\":{{\"description\":\"Successful \
             Response\",\"content\":{{\"application/json\":{{\"schema\":{}}}}}}}{}}}{security}}}}}",
            quoted(&format!("/{}", grouped(self.group, self.name, "/"))),
            quoted(&capitalised(self.name)),
            description.unwrap_or_default(),
            quoted(&self.id),
            request.unwrap_or_default(),
            self.answer(body.is_some()),
            refused.unwrap_or_default(),
        )
    }

    /// What it does, a JSON text, and what it needs that its schema does not say: of a schema clients read the properties.
    fn described(&self, body: Option<&RequestBody>) -> Option<String> {
        let needs = body.and_then(RequestBody::needs);
        let said = self.description.and_then(string_value).filter(|it| !it.is_empty());
        match (needs, said) {
            (None, _) => self.description.map(|raw| String::from_utf8_lossy(raw).into_owned()),
            (Some(needs), Some(said)) if !said.contains(needs) => {
                let space = if said.ends_with(char::is_whitespace) { "" } else { " " };
                Some(quoted(&format!("{said}{space}{needs}")))
            }
            (Some(_), Some(said)) => Some(quoted(&said)),
            (Some(needs), None) => Some(quoted(needs)),
        }
    }

    /// The schema of its answers: whatever the tool gives.
    fn answer(&self, has_body: bool) -> String {
        let title = quoted(&format!("Response {}", capitalised(&self.id)));
        match &self.output {
            Some(_) if has_body => {
                let model = self.reference("response_model");
                format!("{{\"anyOf\":[{model},{{}}],\"title\":{title}}}")
            }
            _ if has_body => format!("{{\"title\":{title}}}"),
            _ => "{}".to_owned(),
        }
    }

    /// Its schemas, as members of `components.schemas`.
    pub(super) fn schemas(&self, body: Option<&RequestBody>) -> Vec<String> {
        let body = body.filter(|body| body.is_needed());
        let member = |kind: &str, schema: &RequestBody| {
            format!("{}:{}", quoted(&self.component(kind)), schema.schema())
        };
        let form = body.map(|body| member("form_model", body));
        let output = self.output.as_ref().filter(|_| body.is_some());
        form.into_iter().chain(output.map(|it| member("response_model", it))).collect()
    }

    fn component(&self, kind: &str) -> String {
        format!("{}_{kind}", self.component)
    }

    fn reference(&self, kind: &str) -> String {
        format!("{{\"$ref\":\"#/components/schemas/{}\"}}", self.component(kind))
    }
}

/// A name below that of its group, if it has one.
fn grouped(group: &str, name: &str, between: &str) -> String {
    match group {
        "" => name.to_owned(),
        group => format!("{group}{between}{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::titles::{component, operation_id};
    use super::*;

    #[test]
    fn what_arguments_are_needed_together_is_in_the_description() {
        const NEEDS: &str = "Give at least one of: `a`; `b`.";
        let both =
            r#"{"properties":{"a":{},"b":{}},"anyOf":[{"required":["a"]},{"required":["b"]}]}"#;
        let any = r#"{"properties":{"a":{}}}"#;
        for (schema, description, expected) in [
            (both, "", format!(r#""{NEEDS}""#)),
            (both, r#","description":"Finds \"it\".""#, format!(r#""Finds \"it\". {NEEDS}""#)),
            (both, r#","description":"Finds:\n""#, format!(r#""Finds:\n{NEEDS}""#)),
            (both, &format!(r#","description":"{NEEDS} Now.""#), format!(r#""{NEEDS} Now.""#)),
            (any, r#","description":"Finds.""#, r#""Finds.""#.to_owned()),
        ] {
            let tool = format!(r#"{{"name":"find","inputSchema":{schema}{description}}}"#);
            let body = RequestBody::of(schema, "find_form_model");
            let (mut ids, mut components) = (Names::new(operation_id), Names::new(component));
            let path = Operation::of("find", &tool, "", &mut ids, &mut components)
                .path(Some(&body), false);
            let says = format!(r#""summary":"Find","description":{expected},"operationId""#);
            assert!(path.contains(&says), "{path}");
        }
    }
}
