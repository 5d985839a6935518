//! Learning: what a server offers, asked of throw-away children, one for each era.
//!
//! When that is done, and what becomes of it, is for `catalog` to say.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pontoon_wire::{Era, Revision, Slot, json, method};
use tokio_util::sync::CancellationToken;

use super::catalog::{Catalog, Facts};
use super::lists::{ask, learn_lists};
use crate::back::Back;
use crate::back::children::{StartError, chain, own_info};
use crate::back::handshake::{HandshakeError, Opening};
use crate::client::Person;

/// How much longer than the legacy era the modern one may take to be learnt.
const PROBE: Duration = Duration::from_secs(10);

/// What was learnt of each era, or why not.
pub(super) struct Learnt {
    legacy: Result<Facts, LearnError>,
    modern: Result<Facts, LearnError>,
}

/// Why an era could not be learnt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LearnError {
    /// The server said that it does not speak it.
    #[error("{0}")]
    Refused(String),
    /// Something went wrong, which says nothing about the server's eras.
    #[error("{0}")]
    Failed(String),
    /// Nothing was heard in time, which says as little. Another try may show more.
    #[error("{0}")]
    Slow(String),
}

impl Learnt {
    /// The era of which nothing was heard, if there is one: that it was slow proves nothing.
    pub(super) fn unheard(&self) -> Option<(Era, &LearnError)> {
        match (&self.legacy, &self.modern) {
            (Err(why @ LearnError::Slow(_)), _) => Some((Era::Legacy, why)),
            (_, Err(why @ LearnError::Slow(_))) => Some((Era::Modern, why)),
            _ => None,
        }
    }

    /// The catalogue. An era that was known stays known if only something went wrong this time.
    pub(super) fn into_catalog(self, before: Option<&Catalog>) -> Catalog {
        let keep = |learnt: Result<Facts, LearnError>, before: Option<&Facts>| match learnt {
            Ok(facts) => Some(facts),
            Err(LearnError::Refused(_)) => None,
            Err(LearnError::Failed(_) | LearnError::Slow(_)) => before.cloned(),
        };
        let mut catalog = Catalog {
            legacy: keep(self.legacy, before.and_then(|before| before.legacy.as_ref())),
            modern: keep(self.modern, before.and_then(|before| before.modern.as_ref())),
            rules: HashMap::new(),
        };
        catalog.read_rules();
        catalog
    }
}

/// Learns what a server offers this person, in both eras at once, each from a child of its own. What the
/// legacy era offers is told as soon as it is known: its clients need not wait for the other.
pub(super) async fn learn(
    back: &Back,
    person: &Arc<Person>,
    tell_legacy: impl FnOnce(&Facts),
) -> Result<Learnt, String> {
    let known = CancellationToken::new();
    let (legacy, modern) = tokio::join!(
        async {
            let _known = known.clone().drop_guard();
            learn_legacy(back, person).await.inspect(tell_legacy)
        },
        learn_modern(back, person, &known)
    );
    if let (Err(legacy), Err(modern)) = (&legacy, &modern) {
        let (legacy, modern) = (legacy.to_string(), modern.to_string());
        return Err(match legacy == modern {
            true => legacy,
            false => format!("{legacy} (and for the modern era: {modern})"),
        });
    }
    Ok(Learnt { legacy, modern })
}

/// Learns what a server offers this person in an era that it is known to speak.
pub(super) async fn learn_era(
    back: &Back,
    person: &Arc<Person>,
    era: Era,
) -> Result<Facts, LearnError> {
    match era {
        Era::Legacy => learn_legacy(back, person).await,
        Era::Modern => learn_modern(back, person, &CancellationToken::new()).await,
    }
}

async fn learn_legacy(back: &Back, person: &Arc<Person>) -> Result<Facts, LearnError> {
    let opening = Opening::Legacy {
        revision: Revision::NEWEST_LEGACY,
        capabilities: Bytes::from_static(b"{\"elicitation\":{},\"sampling\":{},\"roots\":{}}"),
        info: own_info(),
    };
    let live = back.start_to_learn(&opening, person).await.map_err(|error| match &error {
        StartError::Handshake { error: HandshakeError::Refused(_), .. } => {
            LearnError::Refused(chain(&error))
        }
        StartError::Handshake { error: HandshakeError::Silent, .. } => {
            LearnError::Slow(chain(&error))
        }
        _ => LearnError::Failed(chain(&error)),
    })?;
    let silent = || LearnError::Failed("it did not answer `initialize`".to_owned());
    let hello = live.hello.clone().ok_or_else(silent)?;
    let result = hello.raw(Slot::Result).unwrap_or(b"{}");
    let facts = learn_lists(&live, result, json::find(result, "serverInfo")).await?;
    Ok(facts.without_paths(&live))
}

/// A server of the legacy era alone may never answer, so this waits not much longer than the other
/// child takes, which is `known` then: both have the same way to start.
async fn learn_modern(
    back: &Back,
    person: &Arc<Person>,
    known: &CancellationToken,
) -> Result<Facts, LearnError> {
    let live = back.start_to_learn(&Opening::Modern, person).await;
    let live = live.map_err(|error| LearnError::Failed(chain(&error)))?;
    let late = async {
        known.cancelled().await;
        tokio::time::sleep(PROBE).await;
    };
    let discovered = tokio::select! {
        discovered = ask(&live, method::DISCOVER, "{}") => discovered?,
        () = late => {
            let (seconds, method) = (PROBE.as_secs(), method::DISCOVER);
            let text = format!("it did not answer `{method}` within {seconds} s of the other era");
            return Err(LearnError::Slow(text));
        }
    };
    let result = discovered.raw(Slot::Result).unwrap_or(b"{}");
    let versions = json::find(result, "supportedVersions").unwrap_or(b"[]");
    let mut versions = json::elements(versions, 0..versions.len()).map(|range| &versions[range]);
    let newest = format!("\"{}\"", Revision::NEWEST_MODERN);
    if !versions.any(|version| version == newest.as_bytes()) {
        return Err(LearnError::Refused(format!("it does not speak {}", Revision::NEWEST_MODERN)));
    }
    let facts = learn_lists(&live, result, discovered.raw(Slot::ResultServerInfo)).await?;
    Ok(facts.without_paths(&live))
}
