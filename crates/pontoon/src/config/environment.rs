//! Our own environment, read once and handed down, so that nothing looks at the process later.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::sync::Arc;

/// The variables of one environment.
#[derive(Clone, Default)]
pub struct Environment(Arc<BTreeMap<OsString, OsString>>);

/// One variable of this process, for what is printed and nothing else.
pub fn own_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

impl Environment {
    /// That of this process.
    pub fn of_process() -> Self {
        Self::new(std::env::vars_os())
    }

    /// One of these variables.
    pub fn new(
        variables: impl IntoIterator<Item = (impl Into<OsString>, impl Into<OsString>)>,
    ) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        Self(Arc::new(variables.collect()))
    }

    /// A variable as it is.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// All variables, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// A variable that is UTF-8 text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.to_str()
    }

    /// The variables that begin with `prefix` and are not empty, with text where it is UTF-8.
    ///
    /// Empty counts as not set: a compose file passes `${MCPO_X:-}` on like that.
    pub(super) fn with_prefix(&self, prefix: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0
            .iter()
            .filter_map(|(name, value)| Some((name.to_str()?, value)))
            .filter(move |(name, value)| name.starts_with(prefix) && !value.is_empty())
            .map(|(name, value)| (name, value.to_str()))
    }
}

/// The values stay out: they may hold secrets, and this goes to the log.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}
