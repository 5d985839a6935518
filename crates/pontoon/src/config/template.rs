//! Arguments and variables with placeholders, filled in when a child starts.
//!
//! `${env:NAME}` is filled in when the file is read, so that secrets stay out of it. The others
//! wait for the child they are for: its workspace, its job, the person who calls.

use std::fmt;

use super::network::USUAL_VARIABLES;
use super::secret::is_own_secret;
use super::values::is_header_name;

/// What a variable holds is no secret if it is shorter, in bytes.
pub const SHORTEST_SECRET: usize = 8;

/// Text with placeholders for what is known only when a child starts.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Template {
    parts: Vec<TemplatePart>,
}

#[derive(Clone, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    /// What a variable held, which may be a secret.
    Variable(String),
    Workdir,
    JobId,
    /// One of [`USER_FIELDS`].
    User(String),
    /// A header of the request, in lower case.
    Header(String),
}

/// What is known when a child starts.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    /// The child's workspace, an absolute path; empty where it has none.
    pub workdir: &'a str,
    /// The job the child is started for; empty where there is none.
    pub job_id: &'a str,
    /// The child's own folder for temporary files; empty to leave it the usual one.
    pub tmpdir: &'a str,
    /// What links to files begin with; may be empty.
    pub base_url: &'a str,
    /// A fact about the person who calls: `id`, `email`, `name` or `role`.
    pub user: &'a dyn Fn(&str) -> Option<String>,
    /// A header of the request, by its name in lower case.
    pub header: &'a dyn Fn(&str) -> Option<String>,
}

/// What is known about a person, by the word that follows `${user:`.
pub(super) const USER_FIELDS: [&str; 4] = ["id", "email", "name", "role"];

/// Headers with the credentials of a client for us or a proxy, which the protocol forbids to pass on.
/// `Authorization` is not always for us: whether it is, the request shows.
const CREDENTIALS: [&str; 2] = ["cookie", "proxy-authorization"];

impl Template {
    /// Text as it is, whatever it looks like.
    pub fn plain(text: impl Into<String>) -> Self {
        Self { parts: vec![TemplatePart::Text(text.into())] }
    }

    /// The id of the user who calls.
    #[cfg(test)]
    pub(crate) fn of_user() -> Self {
        Self { parts: vec![TemplatePart::User("id".into())] }
    }

    /// The text for one child. What is not known is left empty.
    pub fn fill(&self, start: &Start<'_>) -> String {
        let fill = |part: &TemplatePart| match part {
            TemplatePart::Text(text) | TemplatePart::Variable(text) => text.clone(),
            TemplatePart::Workdir => start.workdir.to_owned(),
            TemplatePart::JobId => start.job_id.to_owned(),
            TemplatePart::User(field) => without_nul((start.user)(field)),
            TemplatePart::Header(name) => without_nul((start.header)(name)),
        };
        self.parts.iter().map(fill).collect()
    }

    /// True if the text depends on who calls.
    pub fn needs_person(&self) -> bool {
        self.parts
            .iter()
            .any(|part| matches!(part, TemplatePart::User(_) | TemplatePart::Header(_)))
    }

    /// True if the text depends on where a child works, or for which call.
    pub(super) fn needs_workspace(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, TemplatePart::Workdir | TemplatePart::JobId))
    }

    /// The headers of a request that it holds, in lower case.
    pub fn headers(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Header(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// What variables held that may be secrets.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Variable(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The pieces that are the same for every child.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Text(text) | TemplatePart::Variable(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The text as it is written in the file, but for variables.
    pub(super) fn written(&self) -> String {
        let written = |part: &TemplatePart| match part {
            TemplatePart::Text(text) | TemplatePart::Variable(text) => text.clone(),
            TemplatePart::Workdir => "${MCPO_WORKDIR}".to_owned(),
            TemplatePart::JobId => "${MCPO_JOB_ID}".to_owned(),
            TemplatePart::User(field) => format!("${{user:{field}}}"),
            TemplatePart::Header(name) => format!("${{header:{name}}}"),
        };
        self.parts.iter().map(written).collect()
    }

    fn push_text(&mut self, text: &str) {
        match self.parts.last_mut() {
            Some(TemplatePart::Text(last)) => last.push_str(text),
            _ => self.parts.push(TemplatePart::Text(text.to_owned())),
        }
    }
}

/// The text stays out: it may hold secrets.
impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").finish_non_exhaustive()
    }
}

impl Start<'_> {
    /// A start of which nothing is known: no workspace, no job, nobody.
    pub fn unknown() -> Self {
        Self {
            workdir: "",
            job_id: "",
            tmpdir: "",
            base_url: "",
            user: &|_| None,
            header: &|_| None,
        }
    }
}

/// What a peer says, fit for an argument: no program could be started with a NUL in one.
fn without_nul(value: Option<String>) -> String {
    let mut value = value.unwrap_or_default();
    value.retain(|c| c != '\0');
    value
}

/// What became of a text in the file.
#[derive(Debug)]
pub(super) struct ReadTemplate {
    pub(super) template: Template,
    /// Why placeholders could not be understood. Values are never told, only names.
    pub(super) mistakes: Vec<String>,
    /// What looks like a placeholder and is passed on as written.
    pub(super) warnings: Vec<String>,
}

/// The template that `text` is, each `${env:NAME}` replaced by what `variable` gives for the name.
pub(super) fn read<'a>(text: &str, variable: impl Fn(&str) -> Option<&'a str>) -> ReadTemplate {
    let mut read =
        ReadTemplate { template: Template::default(), mistakes: vec![], warnings: vec![] };
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else { break };
        let (written, inner) = (&rest[start..=start + length], &rest[start + 2..start + length]);
        read.plain(&rest[..start]);
        rest = &rest[start + length + 1..];
        match placeholder(inner, &variable) {
            Ok(Some(TemplatePart::Text(value))) => read.template.push_text(&value),
            Ok(Some(part)) => read.template.parts.push(part),
            Ok(None) if is_name(inner) => read.plain_with_warning(written),
            // Whatever it is, it may be part of a secret, so it is not told.
            Ok(None) => read.plain(written),
            Err(why) => read.mistakes.push(format!("{written}: {why}")),
        }
    }
    read.plain(rest);
    read
}

/// What stands between the braces, or `None` if it is no placeholder at all.
fn placeholder<'a>(
    inner: &str,
    variable: impl Fn(&str) -> Option<&'a str>,
) -> Result<Option<TemplatePart>, String> {
    let part = match (inner, inner.split_once(':')) {
        ("MCPO_WORKDIR", _) => TemplatePart::Workdir,
        ("MCPO_JOB_ID", _) => TemplatePart::JobId,
        (_, Some(("env", name))) if is_own_secret(name) => {
            return Err("is a secret of Pontoon's own, not for its servers".to_owned());
        }
        (_, Some(("env", name))) => {
            let value = variable(name)
                .ok_or_else(|| format!("the variable `{name}` is not set, or is not UTF-8 text"))?;
            // A path, a switch or a port is no secret, and hiding it would spoil every log.
            match USUAL_VARIABLES.contains(&name) || value.len() < SHORTEST_SECRET {
                true => TemplatePart::Text(value.to_owned()),
                false => TemplatePart::Variable(value.to_owned()),
            }
        }
        (_, Some(("user", field))) if USER_FIELDS.contains(&field) => {
            TemplatePart::User(field.to_owned())
        }
        (_, Some(("user", _))) => return Err(format!("there are {}", listed_user_fields())),
        (_, Some(("header", name))) => TemplatePart::Header(header(name)?),
        _ => return Ok(None),
    };
    Ok(Some(part))
}

fn listed_user_fields() -> String {
    USER_FIELDS.map(|field| format!("${{user:{field}}}")).join(", ")
}

/// The name of a header that may be handed on, in lower case.
fn header(name: &str) -> Result<String, String> {
    let name = name.to_ascii_lowercase();
    if !is_header_name(&name) {
        return Err("a header has a name such as X-Name".to_owned());
    }
    if CREDENTIALS.contains(&name.as_str()) {
        return Err("what a client proves itself with to Pontoon is not handed on (the protocol \
                    forbids it); use a header of its own"
            .to_owned());
    }
    Ok(name)
}

fn is_name(inner: &str) -> bool {
    inner.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'))
}

impl ReadTemplate {
    /// Text between placeholders. The form of an older bridge, without the dollar, is pointed out.
    fn plain(&mut self, text: &str) {
        for old in ["{MCPO_WORKDIR}", "{MCPO_JOB_ID}"].into_iter().filter(|old| text.contains(old))
        {
            self.warnings.push(format!("{old} is passed on as written; did you mean ${old}?"));
        }
        if !text.is_empty() {
            self.template.push_text(text);
        }
    }

    fn plain_with_warning(&mut self, written: &str) {
        self.warnings
            .push(format!("{written} is passed on as written; for a variable write ${{env:NAME}}"));
        self.template.push_text(written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `text`, fills it in for one person, and compares that and what is told.
    fn check(text: &str, filled: &str, mistakes: &[&str], warnings: &[&str]) {
        let variable = |name: &str| match name {
            "KEY" => Some("se${env:KEY}cret"),
            "EMPTY" => Some(""),
            _ => None,
        };
        let user = |field: &str| (field == "id").then(|| "u\0 1".to_owned());
        let header = |name: &str| (name == "x-team").then(|| "red".to_owned());
        let start =
            Start { workdir: "/w", job_id: "j", user: &user, header: &header, ..Start::unknown() };
        let read = read(text, variable);
        assert_eq!(read.template.fill(&start), filled);
        assert_eq!(read.mistakes, mistakes);
        assert_eq!(read.warnings, warnings);
    }

    #[test]
    fn variables_are_filled_in_once() {
        check("plain", "plain", &[], &[]);
        check("a${env:KEY}b${env:EMPTY}c", "ase${env:KEY}cretbc", &[], &[]);
        check("$KEY ${env:KEY", "$KEY ${env:KEY", &[], &[]);
    }

    #[test]
    fn what_variables_hold_may_be_secret_but_for_the_usual_ones() {
        let variable = |name: &str| match name {
            "PORT" => Some("8080"),
            _ => Some("hunter22"),
        };
        let text = "a${env:KEY}b${env:HOME}c${env:PORT}${MCPO_WORKDIR}d";
        let template = read(text, variable).template;
        assert_eq!(template.variables().collect::<Vec<_>>(), ["hunter22"]);
        assert_eq!(template.texts().collect::<String>(), "ahunter22bhunter22c8080d");
    }

    #[test]
    fn what_is_known_at_the_start_is_filled_in() {
        check("--dir=${MCPO_WORKDIR}/x", "--dir=/w/x", &[], &[]);
        check("${MCPO_JOB_ID}${MCPO_JOB_ID}", "jj", &[], &[]);
        check("${user:id}-${header:X-Team}", "u 1-red", &[], &[]);
    }

    #[test]
    fn what_is_not_known_is_empty() {
        check("<${user:email}${header:X-Other}>", "<>", &[], &[]);
    }

    #[test]
    fn every_missing_variable_is_told() {
        check(
            "${env:A} ${env:KEY} ${env:}",
            " se${env:KEY}cret ",
            &[
                "${env:A}: the variable `A` is not set, or is not UTF-8 text",
                "${env:}: the variable `` is not set, or is not UTF-8 text",
            ],
            &[],
        );
    }

    #[test]
    fn a_wrong_placeholder_is_a_mistake() {
        let told = "${user:mail}: there are ${user:id}, ${user:email}, ${user:name}, ${user:role}";
        check("${user:mail}", "", &[told], &[]);
        check("${header:a b}", "", &["${header:a b}: a header has a name such as X-Name"], &[]);
    }

    #[test]
    fn our_own_secrets_are_not_handed_on() {
        let told = "${env:MCPO_API_KEY}: is a secret of Pontoon's own, not for its servers";
        check("${env:MCPO_API_KEY}", "", &[told], &[]);
    }

    #[test]
    fn credentials_of_a_client_are_not_handed_on() {
        for name in ["cookie", "PROXY-Authorization"] {
            let read = read(&format!("${{header:{name}}}"), |_| None);
            assert_eq!(read.mistakes.len(), 1, "{name}");
            assert!(read.mistakes[0].contains("is not handed on"), "{:?}", read.mistakes);
        }
    }

    #[test]
    fn what_only_looks_like_a_placeholder_is_passed_on() {
        check(
            "${HOME}",
            "${HOME}",
            &[],
            &["${HOME} is passed on as written; for a variable write ${env:NAME}"],
        );
        check("pass${w%r&}", "pass${w%r&}", &[], &[]);
        check(
            "{MCPO_WORKDIR}/a",
            "{MCPO_WORKDIR}/a",
            &[],
            &["{MCPO_WORKDIR} is passed on as written; did you mean ${MCPO_WORKDIR}?"],
        );
    }

    #[test]
    fn a_template_knows_whether_it_depends_on_who_calls() {
        let needs = |text: &str| read(text, |_| Some("${user:id}")).template.needs_person();
        assert!(needs("a${user:id}") && needs("${header:X-A}"));
        assert!(!needs("${MCPO_WORKDIR}${env:A}") && !Template::plain("${user:id}").needs_person());
    }

    #[test]
    fn debugging_shows_no_secret() {
        assert!(!format!("{:?}", Template::plain("hunter2")).contains("hunter2"));
    }
}
