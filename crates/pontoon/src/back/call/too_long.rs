//! A call that is longer than its application takes: it fails alone, once, and the next of its kind is not sent.

use super::exchange::Exchange;
use crate::call::CallError;
use crate::clock::now;

/// What a model can do about it.
const SEND_LESS: &str = "send less at once, such as the path of a file in place of what is in it";

impl Exchange<'_> {
    /// What the client hears of a call that would be refused, as another of its length was.
    pub(crate) fn foreseen_refusal(&self) -> Option<CallError> {
        let bytes = self.request.text().len();
        let refused = self.back.app()?.size_limit().refuses(bytes, now())?;
        Some(CallError::TooLong(format!(
            "this call is {bytes} bytes long, and the application has refused a message of {refused} bytes as too long \
             (1009), so it was not sent: {SEND_LESS}"
        )))
    }

    /// What the client hears of a call that was refused for its length.
    pub(crate) fn refused_for_length(&self) -> CallError {
        let bytes = self.request.text().len();
        tracing::warn!(server = %self.back.server.name, bytes, "a call was too long for the application");
        if let Some(app) = self.back.app() {
            app.size_limit().note_refused(bytes, now());
        }
        CallError::TooLong(format!(
            "this call is {bytes} bytes long, which is too long for the application: it closed the connection (1009) and \
             did not carry the call out; {SEND_LESS}"
        ))
    }

    /// Takes note that a call of this length was answered.
    pub(crate) fn note_length_taken(&self) {
        if let Some(app) = self.back.app() {
            app.size_limit().note_taken(self.request.text().len());
        }
    }
}
