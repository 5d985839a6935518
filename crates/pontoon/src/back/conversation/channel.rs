//! Queues of whole messages as the carrier of a conversation, for what sends each message in a way of its own.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

use super::websocket::{SocketEnd, SocketEvent};

/// How many messages wait on each side.
const QUEUE: usize = 16;

/// The side of the conversation.
#[derive(Debug)]
pub(crate) struct MessageChannel {
    /// Taken when it is closed.
    to: Option<mpsc::Sender<Bytes>>,
    from: mpsc::Receiver<BytesMut>,
    queue: VecDeque<Bytes>,
    /// More waits than the queue was given.
    is_short: bool,
    is_closing: bool,
    end: Arc<OnceLock<SocketEnd>>,
}

/// The side of what sends the messages.
#[derive(Debug)]
pub(crate) struct MessageSender {
    /// What is to be sent; ends when the conversation is over.
    pub(crate) outgoing: mpsc::Receiver<Bytes>,
    /// What came. When the last of these is dropped, the server is gone.
    pub(crate) incoming: mpsc::Sender<BytesMut>,
    /// How it ended.
    pub(crate) end: Arc<OnceLock<SocketEnd>>,
}

/// Both sides.
pub(crate) fn message_channel() -> (MessageChannel, MessageSender) {
    let (to, outgoing) = mpsc::channel(QUEUE);
    let (incoming, from) = mpsc::channel(QUEUE);
    let end = Arc::new(OnceLock::new());
    let queue = VecDeque::new();
    let channel = MessageChannel {
        to: Some(to),
        from,
        queue,
        is_short: false,
        is_closing: false,
        end: Arc::clone(&end),
    };
    (channel, MessageSender { outgoing, incoming, end })
}

impl MessageChannel {
    /// Whether it takes another message.
    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < QUEUE
    }

    /// Sends this message in its turn.
    pub(super) fn send(&mut self, message: Bytes) {
        self.queue.push_back(message);
    }

    /// Says that more messages wait: it tells when it takes one.
    pub(super) fn tell_room(&mut self) {
        self.is_short = true;
    }

    /// Closes it when everything was sent.
    pub(super) fn close(&mut self) {
        self.is_closing = true;
    }

    /// How it ended, once it has.
    pub(super) fn end(&self) -> Option<&SocketEnd> {
        self.end.get()
    }

    /// What happens next; meanwhile what is to be sent is sent. Cancel safe: messages lie in the queues.
    pub(super) async fn next_event(&mut self) -> SocketEvent {
        loop {
            if self.is_short && self.has_room() {
                self.is_short = false;
                return SocketEvent::Room;
            }
            if self.is_closing && self.queue.is_empty() {
                self.to = None;
            }
            let is_waiting = !self.queue.is_empty() && self.to.is_some();
            tokio::select! {
                permit = reserve(self.to.as_ref()), if is_waiting => match (permit, self.queue.pop_front()) {
                    (Some(permit), Some(message)) => permit.send(message),
                    // The other side is gone, which is read next.
                    _ => self.queue.clear(),
                },
                came = self.from.recv() => return came.map_or(SocketEvent::End, SocketEvent::Frame),
            }
        }
    }
}

async fn reserve(to: Option<&mpsc::Sender<Bytes>>) -> Option<mpsc::Permit<'_, Bytes>> {
    to?.reserve().await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_go_both_ways_and_a_close_comes_after_what_was_sent() {
        let (mut channel, mut sender) = message_channel();
        channel.send(Bytes::from_static(b"a"));
        channel.close();
        let other = async {
            assert_eq!(sender.outgoing.recv().await.unwrap(), "a");
            assert_eq!(sender.outgoing.recv().await, None, "it is closed");
            sender.incoming.send(BytesMut::from(&b"b"[..])).await.unwrap();
            drop(sender);
        };
        let own = async {
            assert!(matches!(channel.next_event().await, SocketEvent::Frame(it) if it == "b"));
            assert!(matches!(channel.next_event().await, SocketEvent::End));
        };
        tokio::join!(other, own);
    }
}
