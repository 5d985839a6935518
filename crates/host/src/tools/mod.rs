//! Tools: functions of a program, described, checked and called.

mod call;
mod output;
mod pump;
mod tool;
mod toolset;

pub use call::ToolCall;
pub(crate) use call::{Gate, Progress};
pub use output::{Content, IntoToolOutput, Json, Resource, ToolError, ToolOutput};
pub use pump::Pump;
pub use tool::Tool;
pub(crate) use toolset::Tools;
pub use toolset::{ToolValidationError, Toolset};
