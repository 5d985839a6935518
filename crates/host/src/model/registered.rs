//! The tools that a model was given.

use super::error::ModelError;
use super::settings::{ToolsetOptions, Transport};
use crate::tools::Tools;

/// The tools of a model.
#[derive(Debug, Clone)]
pub(super) struct Registered {
    pub(super) tools: Tools,
    pub(super) options: ToolsetOptions,
}

impl Registered {
    pub(super) fn transport(&self) -> Result<Transport, ModelError> {
        self.options.transport.resolve(std::env::var_os("PONTOON_TRANSPORT").as_deref())
    }
}
