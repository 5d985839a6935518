//! Tools: functions of a program, described, checked and called.

mod call;
mod output;
mod tool;
mod toolset;

pub(crate) use call::Progress;
pub use call::ToolCall;
pub use output::{Content, IntoToolOutput, Json, Resource, ToolError, ToolOutput};
pub use tool::Tool;
pub(crate) use toolset::Tools;
pub use toolset::{ToolValidationError, Toolset};
