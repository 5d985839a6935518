//! How the client of a call hears that the call is about to be sent to the application, before it is.
//!
//! A client that is another bridge has to know: if the bridge that it asks dies, a call that was never sent can be made
//! again, and one that may have been sent cannot.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

/// How long a client may take to take the word.
const PATIENCE: Duration = Duration::from_secs(5);

/// Says it to the client of the request with this id. What comes back fires once it is written, and fails if it never
/// will be.
type SayPassedOn = dyn Fn(&Bytes) -> oneshot::Receiver<()> + Send + Sync;

/// How a client hears that its call is about to be sent.
#[derive(Clone)]
pub struct PassingOn(Arc<SayPassedOn>);

impl fmt::Debug for PassingOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PassingOn")
    }
}

impl PassingOn {
    /// It is said by this.
    pub fn new(say: impl Fn(&Bytes) -> oneshot::Receiver<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(say))
    }

    /// Says so of the request with this id. False if the client did not take it: then the call must not be sent.
    pub async fn say(&self, id: &Bytes) -> bool {
        tokio::time::timeout(PATIENCE, (self.0)(id)).await.is_ok_and(|written| written.is_ok())
    }
}
