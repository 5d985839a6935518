//! Probes: children that are started to be asked what the server offers, and serve no call.
//!
//! What they are asked is for `session/learn` to say.

use std::time::Duration;

use bytes::Bytes;
use pontoon_wire::Revision;

use super::launcher::{Launcher, StartError, Unopened, failed_handshake};
use super::ready::ReadyChild;
use crate::back::conversation::handshake::{HandshakeError, shake_hands};
use crate::back::conversation::requests::own_info;
use crate::client::Person;
use crate::clock::now;
use crate::errors::chain;

impl Launcher {
    /// Starts a child to learn what the server offers this person. Nothing is said to it yet.
    pub async fn start_to_learn(&self, person: &Person) -> Result<ReadyChild, StartError> {
        let workspace = self.own_workspace().await;
        let workspace = workspace.map_err(|error| StartError::Workspace(chain(&error)))?;
        let began = now();
        let spawned = self.spawn(person, workspace, true).await;
        self.counted(spawned.map(|Unopened(child)| child), began)
    }

    /// Shakes hands with such a child, for no client.
    pub async fn greet(
        &self,
        child: &mut ReadyChild,
        patience: Duration,
    ) -> Result<(), StartError> {
        // A server may offer more to a client that can be asked. One that all share asks none.
        let capabilities = Bytes::from_static(match self.server.mode.is_shared() {
            true => b"{}",
            false => b"{\"elicitation\":{},\"sampling\":{},\"roots\":{}}",
        });
        let (revision, info) = (Revision::NEWEST_LEGACY, own_info());
        let deadline = now() + patience.min(self.server.timeout);
        let shaken =
            shake_hands(&child.link, revision, &capabilities, &info, deadline, &self.heals);
        match shaken.await {
            Ok(hello) => child.conversation.hello = Some(hello),
            Err(error) => {
                // One that refuses only does not speak this era.
                if !matches!(error, HandshakeError::Refused(_)) {
                    self.metrics.child_failed();
                }
                return Err(failed_handshake(child, error).await);
            }
        }
        Ok(())
    }
}
