//! Sends spans to a collector of OpenTelemetry: OTLP over HTTP, a batch in a request, one request at a time.
//!
//! No call waits for it. What the collector does not take in a few tries is dropped and counted; while it is tried, other
//! spans gather in their queue, which has a limit of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{HeaderMap, Method, StatusCode};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::back::Surroundings;
use crate::back::remote::dial::Dialer;
use crate::back::remote::http::pool::HttpPool;
use crate::back::remote::token::TokenReader;
use crate::config::{AppHeader, AppHeaders, AppTarget, Silence, TraceSettings};
use crate::observe::spans::{Scope, Span, Tracer, rejected, request};

/// How long is waited before each further try, if the collector says nothing of that.
const PAUSES_SECONDS: [u64; 4] = [1, 2, 4, 8];

/// The longest that the collector may ask us to wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// So much is read of an answer. The usual one is empty.
const MAX_ANSWER: usize = 64 * 1024;

/// The task that sends spans, until it is dropped.
#[derive(Debug)]
pub(super) struct Collector {
    sending: JoinHandle<()>,
    stop: DropGuard,
}

impl Collector {
    /// Sends the spans of this tracer from now on.
    pub(super) fn start(
        settings: &TraceSettings,
        tracer: Arc<Tracer>,
        around: &Surroundings,
    ) -> Self {
        let stop = CancellationToken::new();
        let machine = &around.machine;
        let tokens = TokenReader {
            starter: machine.starter.clone(),
            environment: machine.environment.clone(),
            secrets: machine.secrets.clone(),
        };
        let sender = Sender {
            pool: HttpPool::new(target(settings), Dialer::new(tokens)),
            scope: Scope { resource: settings.resource.clone() },
            timeout: settings.timeout,
            tracer,
            stop: stop.clone(),
            is_well: true,
        };
        Self { sending: tokio::spawn(sender.run()), stop: stop.drop_guard() }
    }

    /// Sends what is there, and ends; no later than after `patience`.
    pub(super) async fn finish(self, patience: Duration) {
        let Self { mut sending, stop } = self;
        drop(stop);
        if tokio::time::timeout(patience, &mut sending).await.is_err() {
            sending.abort();
        }
    }
}

/// The collector as an address to be dialled.
fn target(settings: &TraceSettings) -> AppTarget {
    let header = |(name, value): &(String, _)| AppHeader {
        name: name.clone(),
        value: Clone::clone(value),
        is_from_variable: true,
    };
    AppTarget {
        endpoint: settings.collector.clone(),
        token: None,
        headers: AppHeaders { typed: settings.headers.iter().map(header).collect(), file: None },
        tls: settings.tls.clone(),
        silence: Silence::USUAL,
    }
}

/// Why the collector did not take a batch.
#[derive(Debug, thiserror::Error)]
enum NotTaken {
    /// It never will.
    #[error("it answered HTTP {0}")]
    Never(StatusCode),
    /// It may take it later.
    #[error("{why}")]
    NotNow { why: String, retry_after: Option<Duration> },
}

struct Sender {
    pool: HttpPool,
    scope: Scope,
    timeout: Duration,
    tracer: Arc<Tracer>,
    stop: CancellationToken,
    /// Whether the last batch was taken: only a change is logged.
    is_well: bool,
}

impl Sender {
    async fn run(mut self) {
        let stop = self.stop.clone();
        loop {
            let batch = tokio::select! {
                () = stop.cancelled() => break,
                batch = self.tracer.queue.batch() => batch,
            };
            self.send(&batch).await;
        }
        loop {
            let batch = self.tracer.queue.take();
            if batch.is_empty() {
                return;
            }
            self.send(&batch).await;
        }
    }

    /// Sends a batch, with some tries, of which there is one where the bridge stops.
    async fn send(&mut self, batch: &[Span]) {
        let body = Bytes::from(request(&self.scope, batch));
        let mut pauses = PAUSES_SECONDS.into_iter().map(Duration::from_secs);
        loop {
            let why = match self.post(&body).await {
                Ok(unwanted) => return self.note_taken(unwanted.min(batch.len() as u64)),
                Err(why) => why,
            };
            let pause = pauses.next().filter(|_| !self.stop.is_cancelled());
            let (Some(pause), NotTaken::NotNow { retry_after, .. }) = (pause, &why) else {
                self.tracer.queue.dropped(batch.len() as u64);
                return self.note_trouble(&why, batch.len());
            };
            self.note_trouble(&why, 0);
            let pause = retry_after.unwrap_or(pause).min(LONGEST_PAUSE) + jitter(pause);
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One request; gives how many of its spans the collector did not want.
    async fn post(&self, body: &Bytes) -> Result<u64, NotTaken> {
        let posting = async {
            let mut headers = HeaderMap::new();
            let protobuf = HeaderValue::from_static("application/x-protobuf");
            let agent = concat!("pontoon/", env!("CARGO_PKG_VERSION"));
            headers.insert(ACCEPT, protobuf.clone());
            headers.insert(CONTENT_TYPE, protobuf);
            headers.insert(USER_AGENT, HeaderValue::from_static(agent));
            let not_now = |why: String| NotTaken::NotNow { why, retry_after: None };
            let made = self.pool.request(Method::POST, &headers, body).await;
            let (response, connection) = made.map_err(|error| not_now(error.to_string()))?;
            let status = response.status();
            let wait = response.headers().get(RETRY_AFTER).and_then(|it| it.to_str().ok());
            let wait = wait.and_then(|it| it.parse().ok()).map(Duration::from_secs);
            let answer = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            let answer = answer.map_err(|error| not_now(error.to_string()))?.to_bytes();
            self.pool.keep(connection);
            match status.as_u16() {
                200..=299 => Ok(rejected(&answer)),
                429 | 502 | 503 | 504 => {
                    let why = format!("it answered HTTP {status}");
                    Err(NotTaken::NotNow { why, retry_after: wait })
                }
                _ => Err(NotTaken::Never(status)),
            }
        };
        let posted = tokio::time::timeout(self.timeout, posting).await;
        posted.unwrap_or_else(|_| {
            let why = format!("it did not answer within {:?}", self.timeout);
            Err(NotTaken::NotNow { why, retry_after: None })
        })
    }

    fn note_taken(&mut self, unwanted: u64) {
        if unwanted > 0 {
            self.tracer.queue.dropped(unwanted);
            tracing::warn!(spans = unwanted, "the collector did not want all spans");
        } else if !self.is_well {
            tracing::info!("the collector takes spans again");
        }
        self.is_well = true;
    }

    fn note_trouble(&mut self, why: &NotTaken, lost: usize) {
        let error = why as &dyn std::error::Error;
        match self.is_well {
            true => tracing::warn!(error, lost, "the collector takes no spans"),
            false => tracing::debug!(error, lost, "the collector still takes no spans"),
        }
        self.is_well = false;
    }
}

/// Up to a quarter of a pause, so that many bridges do not come back at once.
fn jitter(pause: Duration) -> Duration {
    let random = uuid::Uuid::new_v4().as_u128() as u32;
    pause.mul_f64(f64::from(random) / f64::from(u32::MAX) / 4.0)
}
