//! A connection to an application, with the conversation that is opened on it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pontoon_wire::{Era, Message, Revision, method};
use tokio_util::sync::CancellationToken;

use super::sharing::LEAVING;
use crate::back::conversation::carrier::Carrier;
use crate::back::conversation::feeding::Feeding;
use crate::back::conversation::handshake::{HandshakeError, Opening, shake_hands, speaks_newest};
use crate::back::conversation::link::{Link, LinkOptions, Listening};
use crate::back::conversation::list_changes::ListChanges;
use crate::back::conversation::{Conversation, NoResult};
use crate::client::Client;
use crate::clock::now;

/// From when on it is said that it takes long.
const SLOW: Duration = Duration::from_secs(3);

/// A connection to an application, ready for calls. Dropping the last of its users closes it.
#[derive(Debug)]
pub struct AppConnection {
    conversation: Conversation,
    pub(super) opened: Instant,
    /// Hears from a modern application that its lists changed.
    lists: Option<Feeding>,
    /// Fires when the other side has said that it leaves: open calls go on, new ones are not made here.
    leaving: CancellationToken,
    /// Hears that.
    _hearing: Listening,
}

impl std::ops::Deref for AppConnection {
    type Target = Conversation;

    fn deref(&self) -> &Conversation {
        &self.conversation
    }
}

impl Drop for AppConnection {
    fn drop(&mut self) {
        self.link.close_input();
    }
}

impl AppConnection {
    /// Opens a conversation in this era for this client, which takes no longer than `patience`.
    pub(super) async fn open(
        carrier: Carrier,
        options: &LinkOptions,
        changes: &Arc<ListChanges>,
        client: &Client,
        era: Era,
        patience: Duration,
        delayed: &(dyn Fn(String) + Sync),
    ) -> (Self, Result<(), HandshakeError>) {
        let conversation = Conversation::new(Link::start(carrier, options), changes).with_app();
        let leaving = CancellationToken::new();
        let heard = leaving.clone();
        let hearing = conversation.link.listen(Arc::new(move |note| {
            if note.method() == LEAVING {
                heard.cancel();
            }
        }));
        // From here on it is closed if it comes to nothing.
        let mut connection =
            Self { conversation, opened: now(), lists: None, leaving, _hearing: hearing };
        connection.conversation.era = era;
        let opening = Opening::for_client(client, era);
        let opened = tokio::select! {
            opened = connection.greet(opening, client.era(), options, patience) => opened,
            never = connection.tell_delay(delayed) => match never {},
        };
        match opened {
            Ok(hello) => connection.conversation.hello = Some(hello),
            Err(why) => return (connection, Err(why)),
        }
        if era == Era::Modern {
            connection.lists = Some(connection.hear_of_lists(changes));
        }
        (connection, Ok(()))
    }

    /// Says why calls have to wait, if the application is slow to open a conversation: it may be something else.
    async fn tell_delay(&self, delayed: &(dyn Fn(String) + Sync)) -> std::convert::Infallible {
        tokio::time::sleep(SLOW).await;
        delayed(match self.link.noise() {
            Some(said) => format!("it said {said:?}, which is no MCP"),
            None => format!("it has not answered for {} s", SLOW.as_secs()),
        });
        std::future::pending().await
    }

    /// Opens the conversation, and gives what the application says of itself.
    async fn greet(
        &self,
        opening: Opening,
        client: Era,
        options: &LinkOptions,
        patience: Duration,
    ) -> Result<Message, HandshakeError> {
        match opening {
            Opening::Legacy { revision, capabilities, info } => {
                self.link.hold_for(capabilities.clone(), client);
                let (deadline, heals) = (now() + patience, &options.heals);
                shake_hands(&self.link, revision, &capabilities, &info, deadline, heals).await
            }
            Opening::Modern => {
                let discovered = self.result_of(method::DISCOVER, "{}", patience).await;
                let discovered = discovered.map_err(|why| match why {
                    NoResult::Refused(text) => HandshakeError::Refused(text),
                    NoResult::Slow => HandshakeError::Silent,
                    NoResult::Gone => HandshakeError::Gone,
                })?;
                if !speaks_newest(&discovered) {
                    let text = format!("it does not speak {}", Revision::NEWEST_MODERN);
                    return Err(HandshakeError::Refused(text));
                }
                Ok(discovered)
            }
        }
    }

    /// Whether calls can be made.
    pub(super) fn is_usable(&self) -> bool {
        !self.link.is_gone() && !self.leaving.is_cancelled()
    }

    /// Whether the bridge that had it leaves, so that another has to take it.
    pub(super) fn is_handed_over(&self) -> bool {
        self.leaving.is_cancelled()
    }

    /// Waits until it is gone, or is about to be.
    pub async fn lost(&self) {
        tokio::select! {
            () = self.link.gone() => {}
            () = self.leaving.cancelled() => {}
        }
    }

    /// How it ended, in words.
    pub(crate) fn how_it_ended(&self) -> String {
        let end = self.link.end().map(|end| end.words);
        end.unwrap_or_else(|| match self.leaving.is_cancelled() {
            true => "the bridge that had the connection leaves".to_owned(),
            false => "the connection was closed".to_owned(),
        })
    }
}
