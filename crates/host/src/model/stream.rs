//! Requests that are followed as they go on.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::error::ModelError;
use super::message::Event;
use super::run::{Run, Said};

/// How many items wait for the program before the CLI has to.
const WAITING: usize = 64;

/// What happens in a request, as it happens. Dropping it gives the request up.
pub type EventStream = Following<Event>;

/// The messages of the CLI as it writes them. Dropping it gives the request up.
pub type MessageStream = Following<Value>;

/// A request under way, in a task of its own. Dropping it gives the request up.
#[derive(Debug)]
pub struct Following<T> {
    items: mpsc::Receiver<Result<T, ModelError>>,
    stop: DropGuard,
    task: JoinHandle<()>,
}

impl<T: Send + 'static> Following<T> {
    /// Follows what `start` gives.
    pub(super) fn new(
        start: impl Future<Output = Result<Run, ModelError>> + Send + 'static,
        items_of: fn(Said) -> Vec<T>,
    ) -> Self {
        let (sender, items) = mpsc::channel(WAITING);
        let stop = CancellationToken::new();
        let follow = follow(start, items_of, sender, stop.clone());
        Self { items, stop: stop.drop_guard(), task: tokio::spawn(follow) }
    }

    /// The next one, or `None` at the end. After an error there is no more. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<T, ModelError>> {
        self.items.recv().await
    }

    /// Gives the request up, and waits until nothing is left of it.
    pub async fn stop(self) {
        let Self { items, stop, task } = self;
        drop((items, stop));
        let _ = task.await;
    }
}

impl<T> Stream for Following<T> {
    type Item = Result<T, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.items.poll_recv(context)
    }
}

async fn follow<T>(
    start: impl Future<Output = Result<Run, ModelError>>,
    items_of: fn(Said) -> Vec<T>,
    sender: mpsc::Sender<Result<T, ModelError>>,
    stop: CancellationToken,
) {
    let started = tokio::select! {
        () = stop.cancelled() => return,
        started = start => started,
    };
    let mut run = match started {
        Ok(run) => run,
        Err(error) => return drop(sender.send(Err(error)).await),
    };
    let mut last = None;
    let following = async {
        loop {
            let (message, events) = match run.next().await {
                Ok(said) => said,
                Err(error) => {
                    last = Some(Err(error));
                    return;
                }
            };
            let is_done = events.iter().any(|event| matches!(event, Event::Done(_)));
            for item in items_of((message, events)) {
                // The last item comes when nothing is left of the run.
                if is_done {
                    last = Some(Ok(item));
                    continue;
                }
                match run.within(sender.send(Ok(item))).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return,
                    // The program takes nothing, and the CLI must not wait for it for ever.
                    Err(error) => {
                        last = Some(Err(error));
                        return;
                    }
                }
            }
            if is_done {
                return;
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = following => {}
    }
    run.finish().await;
    if let Some(last) = last {
        let _ = sender.send(last).await;
    }
}
