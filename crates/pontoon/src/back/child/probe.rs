//! Probes: children that are started to be asked what the server offers, and serve no call.
//!
//! What they are asked is for `session/learn` to say.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use pontoon_wire::Revision;
use pontoon_wire::heal::{Heal, HealMode};

use super::launcher::{Launcher, StartError, Unopened, failed_handshake};
use super::ready::ReadyChild;
use super::stage::StartStage;
use crate::back::conversation::handshake::{HandshakeError, shake_hands};
use crate::back::conversation::requests::own_info;
use crate::client::Person;
use crate::clock::now;
use crate::config::SessionKey;
use crate::errors::chain;

/// How long a child may take for a handshake in frames, after another took too long for one in lines.
const FRAMES: Duration = Duration::from_secs(10);

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
        let asks_none =
            self.server.mode.is_shared() || self.server.session_key == SessionKey::Together;
        let capabilities = Bytes::from_static(match asks_none {
            true => b"{}",
            false => b"{\"elicitation\":{},\"sampling\":{},\"roots\":{}}",
        });
        let (revision, info) = (Revision::NEWEST_LEGACY, own_info());
        let patience = patience.min(self.server.timeout);
        let deadline = now() + patience;
        self.stage.send_replace(StartStage::Greeting(patience));
        let shaken =
            shake_hands(&child.link, revision, &capabilities, &info, deadline, &self.heals);
        match shaken.await {
            Ok(hello) => {
                child.conversation.hello = Some(hello);
                self.stage.send_replace(StartStage::Ready);
            }
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

    /// Whether the server turned out to take nothing but frames.
    pub(crate) fn takes_frames(&self) -> bool {
        self.takes_frames.load(Ordering::Relaxed)
    }

    /// Notes whether it does; all children are written to so, where that is to be healed.
    pub(crate) fn note_frames(&self, takes_frames: bool) {
        let is_healed = self.heals.mode(Heal::H05) == HealMode::Repair;
        self.takes_frames.store(takes_frames && is_healed, Ordering::Relaxed);
    }

    /// Whether a server that says nothing to a line is to be tried with frames.
    pub(crate) fn may_take_frames(&self) -> bool {
        self.heals.mode(Heal::H05) == HealMode::Repair && !self.writes_frames()
    }

    /// Shakes hands in frames with a child to which nothing was said. Whether it answered in frames: then all others are
    /// written to so (H05).
    pub(crate) async fn greet_in_frames(&self, child: &mut ReadyChild) -> bool {
        child.link.write_frames();
        let is_framed = self.greet(child, FRAMES).await.is_ok() && child.link.has_framed();
        if is_framed {
            self.note_frames(true);
            tracing::warn!(
                server = %self.server.name,
                "the server reads `Content-Length` frames; `\"framing\": \"content-length\"` in its entry saves the search for that"
            );
        }
        is_framed
    }
}
