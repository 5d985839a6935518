//! Our own environment, read once and handed down, so that nothing looks at the process later.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// The variables of one environment.
pub(super) struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    pub(super) fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self(variables.into_iter().collect())
    }

    /// A variable as it is.
    pub(super) fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
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
