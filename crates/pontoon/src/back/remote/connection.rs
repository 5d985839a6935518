//! A connection to an application, with the conversation that is opened on it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pontoon_wire::{Era, Message, Revision, method};
use tokio_util::sync::CancellationToken;

use crate::back::conversation::carrier::Carrier;
use crate::back::conversation::feeding::{Feeding, LEAVING};
use crate::back::conversation::handshake::{HandshakeError, Opening, shake_hands, speaks_newest};
use crate::back::conversation::link::{Link, LinkOptions, Listening};
use crate::back::conversation::list_changes::ListChanges;
use crate::back::conversation::{Conversation, NoResult};
use crate::client::Client;
use crate::clock::{now, since};

/// How often another bridge is asked for a sign of life, and how long it may take: it answers by itself.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// From when on it is said that it takes long.
const SLOW: Duration = Duration::from_secs(3);

/// A connection to an application, ready for calls. Dropping the last of its users closes it.
#[derive(Debug)]
pub struct AppConnection {
    conversation: Conversation,
    pub(super) opened: Instant,
    /// How long its first answer took.
    greeting: Option<Duration>,
    /// Hears from a modern application that its lists changed.
    lists: Option<Feeding>,
    /// Whether the other side is another bridge, which has the connection to the application.
    pub(crate) is_bridge: bool,
    /// Fires when that has said that it leaves: open calls go on, new ones are not made here.
    leaving: CancellationToken,
    /// Hears that.
    _hearing: Option<Listening>,
}

/// How a conversation is opened.
#[derive(Clone, Copy)]
pub(super) struct Terms<'t> {
    /// For this client.
    pub(super) client: &'t Client,
    /// In this era.
    pub(super) era: Era,
    /// Or in the other, where no second connection can be had to try it on.
    pub(super) may_change_era: bool,
    /// With another bridge.
    pub(super) is_bridge: bool,
    /// It takes no longer than this.
    pub(super) patience: Duration,
    /// Hears why it takes long, if it does.
    pub(super) delayed: &'t (dyn Fn(String) + Sync),
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
    /// Opens a conversation on these terms.
    pub(super) async fn open(
        carrier: Carrier,
        options: &LinkOptions,
        changes: &Arc<ListChanges>,
        terms: &Terms<'_>,
    ) -> (Self, Result<(), HandshakeError>) {
        let conversation = Conversation::new(Link::start(carrier, options), changes).with_app();
        if terms.is_bridge {
            conversation.link.expect_passing_on();
        }
        let leaving = CancellationToken::new();
        let heard = leaving.clone();
        let hearing = terms.is_bridge.then(|| {
            conversation.link.listen(Arc::new(move |note| {
                if note.method() == LEAVING {
                    heard.cancel();
                }
            }))
        });
        // From here on it is closed if it comes to nothing.
        let mut connection = Self {
            conversation,
            opened: now(),
            greeting: None,
            lists: None,
            is_bridge: terms.is_bridge,
            leaving,
            _hearing: hearing,
        };
        let opened = match connection.greet_in(terms.era, options, terms).await {
            Err(HandshakeError::Refused(_)) if terms.may_change_era => {
                connection.greet_in(terms.era.other(), options, terms).await
            }
            opened => opened,
        };
        connection.greeting = Some(since(connection.opened));
        match opened {
            Ok(hello) => connection.conversation.hello = Some(hello),
            Err(why) => return (connection, Err(why)),
        }
        if connection.era == Era::Modern {
            connection.lists = Some(connection.hear_of_lists(changes));
        }
        (connection, Ok(()))
    }

    async fn greet_in(
        &mut self,
        era: Era,
        options: &LinkOptions,
        terms: &Terms<'_>,
    ) -> Result<Message, HandshakeError> {
        self.conversation.era = era;
        let opening = Opening::for_client(terms.client, era);
        tokio::select! {
            opened = self.greet(opening, terms.client.era(), options, terms.patience) => opened,
            never = self.tell_delay(terms.delayed) => match never {},
        }
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
                    NoResult::Slow => HandshakeError::Silent(patience),
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

    /// How long the other side takes to answer by itself: the last ping, or else the first greeting.
    pub fn round_trip(&self) -> Option<Duration> {
        self.link.round_trip().or(self.greeting)
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
            () = self.owner_silence(), if self.is_bridge => {}
        }
    }

    /// Waits until the bridge that has the connection gives no sign of life: it may be stopped. Then its calls are
    /// given up.
    async fn owner_silence(&self) {
        loop {
            tokio::time::sleep(SIGN_OF_LIFE).await;
            if !self.is_responsive_within(SIGN_OF_LIFE).await {
                return self.link.close_input();
            }
        }
    }

    /// How it ended, in words.
    pub(crate) fn how_it_ended(&self) -> String {
        let end = self.link.end().map(|end| end.words);
        end.unwrap_or_else(|| match self.leaving.is_cancelled() {
            true => "the bridge that had the connection leaves".to_owned(),
            false if self.is_bridge => "the bridge that had the connection is gone".to_owned(),
            false => "the connection was closed".to_owned(),
        })
    }
}
