//! The outcome of an examination: all that was seen of one server, whoever reads it.

use std::time::Duration;

use pontoon_schema::Severity;
use serde_json::Value;
use serde_json::value::RawValue;

use super::aspect::Aspect;
use super::recommend::Recommendation;
use super::symptom::{Observation, Symptom};
use super::words::number;

/// What was seen of one server.
#[derive(Debug, Default)]
pub struct Examination {
    /// Its name for a configuration.
    pub name: String,
    /// What was examined: the command line, the address, or the name in a configuration.
    pub target: String,
    /// Why it could not be examined, if it could not.
    pub unexamined: Option<Unexamined>,
    /// What it calls itself, and its version.
    pub server_info: Option<(String, String)>,
    /// From its start to its first answer.
    pub start: Option<Duration>,
    /// The protocol versions that it agreed to.
    pub versions: Vec<String>,
    /// The eras that it speaks.
    pub eras: Vec<&'static str>,
    /// From the end of its input to its own.
    pub end: Option<Duration>,
    /// What is well, or good to know.
    pub observations: Vec<Observation>,
    /// What is not.
    pub symptoms: Vec<Symptom>,
    /// How many tools it lists.
    pub tools: usize,
    /// What clients will show of them.
    pub clients: Vec<ClientView>,
    /// What to write into a configuration.
    pub recommendation: Option<Recommendation>,
    /// Its lists as it gave them, page by page.
    pub dump: Vec<DumpedPage>,
}

/// Why a server could not be examined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unexamined {
    /// What happened.
    pub why: String,
    /// What to do about it.
    pub advice: String,
}

/// What one client shows of the tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientView {
    /// The name of its profile.
    pub profile: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// How that is known: measured with a version on a date, by its rules, or by reports.
    pub basis: String,
    /// How many tools it shows without Pontoon.
    pub straight: usize,
    /// How many it shows through Pontoon.
    pub through: usize,
    /// Why tools are missing without Pontoon: the tool, if it is one, and the codes.
    pub lost: Vec<(String, Vec<&'static str>)>,
    /// Whether one tool, or a list that is too long, costs it all of them.
    pub loses_all: bool,
    /// How many tools it takes, if these are more.
    pub limit: Option<usize>,
    /// Whether `profile` has to name it, for all tools to be shown through Pontoon.
    pub needs_profile: bool,
}

/// One page of a list as it came.
#[derive(Debug, Clone)]
pub struct DumpedPage {
    /// What was asked for.
    pub method: &'static str,
    /// The result.
    pub result: Box<RawValue>,
}

impl Examination {
    /// Notes that something is well.
    pub(super) fn well(&mut self, aspect: Aspect, text: impl Into<String>) {
        self.observations.push(Observation { aspect, was_checked: true, text: text.into() });
    }

    /// Notes that something was not looked at, and why.
    pub(super) fn skip(&mut self, aspect: Aspect, text: impl Into<String>) {
        self.observations.push(Observation { aspect, was_checked: false, text: text.into() });
    }

    /// Notes a fault.
    pub(super) fn found(&mut self, symptom: Symptom) {
        self.symptoms.push(symptom);
    }

    /// How many symptoms are this bad.
    pub fn count(&self, severity: Severity) -> usize {
        self.symptoms.iter().filter(|symptom| symptom.severity == severity).count()
    }

    /// The symptoms, worst first, each kind in the order of its code.
    pub fn sorted(&self) -> Vec<&Symptom> {
        let mut all: Vec<_> = self.symptoms.iter().collect();
        all.sort_by_key(|symptom| {
            (symptom.aspect, std::cmp::Reverse(symptom.severity), symptom.code)
        });
        all
    }

    /// The verdict in one line.
    pub fn verdict(&self) -> String {
        if let Some(unexamined) = &self.unexamined {
            return format!("could not be examined: {}", unexamined.why);
        }
        let (errors, warnings) = (self.count(Severity::Error), self.count(Severity::Warning));
        let tools = number(self.tools, "tool");
        match (errors, warnings) {
            (0, 0) => {
                let fewer = self.clients.iter().filter(|view| view.straight < self.tools).count();
                let clients = match fewer {
                    0 => String::new(),
                    fewer => format!("; {} will show fewer", number(fewer, "client")),
                };
                format!("healthy: {tools}, nothing to mend{clients}")
            }
            (0, warnings) => format!("works: {tools}, {}", number(warnings, "warning")),
            (errors, 0) => format!("needs mending: {tools}, {}", number(errors, "error")),
            (errors, warnings) => format!(
                "needs mending: {tools}, {}, {}",
                number(errors, "error"),
                number(warnings, "warning")
            ),
        }
    }
}

/// A value as text, or nothing.
pub(super) fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
