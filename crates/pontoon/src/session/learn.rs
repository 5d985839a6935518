//! Learning: what a server offers, asked of throw-away children.
//!
//! One that refuses an era is asked for the other one, and so is enough for a server of one era. Both eras of
//! a server take two: it may hold a connection to the era that it was opened in.
//!
//! When that is done, and what becomes of it, is for `catalog` to say.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pontoon_wire::{Era, Revision, Slot, json, method};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::catalog::{Catalog, Facts};
use super::lists::{LearnError, Trust, ask, learn_lists};
use crate::back::Back;
use crate::back::child::launcher::{HANDSHAKE, StartError};
use crate::back::child::ready::ReadyChild;
use crate::back::conversation::handshake::{HandshakeError, speaks_newest};
use crate::client::Person;
use crate::clock::{now, since};
use crate::errors::chain;

/// How long a child that runs may take to say whether it speaks an era.
pub(super) const PROBE: Duration = Duration::from_secs(10);

/// What was learnt of each era, or why not.
pub(super) struct Learnt {
    legacy: Result<Facts, LearnError>,
    modern: Result<Facts, LearnError>,
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
            Err(LearnError::Failed(_) | LearnError::Slow(_) | LearnError::Gone) => {
                before.map(Facts::as_written)
            }
        };
        Catalog {
            legacy: keep(self.legacy, before.and_then(|before| before.legacy.as_ref())),
            modern: keep(self.modern, before.and_then(|before| before.modern.as_ref())),
            ..Catalog::default()
        }
    }
}

/// What is known of a server so far; of an era that was not looked at, nothing.
#[derive(Default)]
pub(super) struct Findings {
    legacy: Option<Result<Facts, LearnError>>,
    modern: Option<Result<Facts, LearnError>>,
    legacy_took: LegacyTook,
}

/// How long it took to find out about the legacy era, once that is so.
type LegacyTook = watch::Sender<Option<Duration>>;

impl Findings {
    fn of(&mut self, era: Era) -> &mut Option<Result<Facts, LearnError>> {
        match era {
            Era::Legacy => &mut self.legacy,
            Era::Modern => &mut self.modern,
        }
    }

    /// Whether this era was looked at.
    pub(super) fn has(&self, era: Era) -> bool {
        match era {
            Era::Legacy => self.legacy.is_some(),
            Era::Modern => self.modern.is_some(),
        }
    }

    /// Learns what is needed for a client of this era: that era, and the other one if the server does not
    /// speak it. The other one is learnt at the same time, too, once it is `late`. What is offered in an
    /// era is told as soon as it is known.
    pub(super) async fn learn<T: Future<Output = ()>>(
        &mut self,
        back: &Back,
        person: &Arc<Person>,
        first: Era,
        late: impl Future<Output = ()>,
        tell: impl Fn(Era, &Facts) -> T,
    ) {
        let (other, took) = (first.other(), &self.legacy_took);
        let (of_first, of_other) = match self.has(other) {
            true => {
                let learnt = look(back, person, first, took).await;
                (told(learnt, first, &tell).await, None)
            }
            false => look_around(back, person, first, took, late, tell).await,
        };
        *self.of(first) = Some(of_first);
        if of_other.is_some() {
            *self.of(other) = of_other;
        }
    }

    /// The whole, when both eras were looked at.
    ///
    /// # Errors
    ///
    /// Why the server cannot be used in either.
    pub(super) fn into_learnt(self) -> Result<Learnt, String> {
        let unseen = || Err(LearnError::Slow("it was not looked at".to_owned()));
        let legacy = self.legacy.unwrap_or_else(unseen);
        let modern = self.modern.unwrap_or_else(unseen);
        if let (Err(legacy), Err(modern)) = (&legacy, &modern) {
            let is_slow = |why: &LearnError| matches!(why, LearnError::Slow(_));
            let is_silent = is_slow(legacy) && is_slow(modern);
            let (legacy, modern) = (legacy.to_string(), modern.to_string());
            // One process that dies or says nothing does so in both eras, and is told of once.
            return Err(match is_silent || legacy.contains(&modern) {
                true => legacy,
                false => format!("{legacy} (and for the modern era: {modern})"),
            });
        }
        Ok(Learnt { legacy, modern })
    }
}

/// Learns what a server offers this person in both eras, at once.
pub(super) async fn learn(back: &Back, person: &Arc<Person>) -> Result<Learnt, String> {
    let mut findings = Findings::default();
    findings
        .learn(back, person, Era::Modern, std::future::ready(()), |_, _| std::future::ready(()))
        .await;
    findings.into_learnt()
}

/// Learns what a server offers this person in an era that it is known to speak.
pub(super) async fn learn_era(
    back: &Back,
    person: &Arc<Person>,
    era: Era,
) -> Result<Facts, LearnError> {
    look(back, person, era, &LegacyTook::default()).await
}

/// What was learnt of an era, once it was told.
async fn told<T: Future<Output = ()>>(
    learnt: Result<Facts, LearnError>,
    era: Era,
    tell: &impl Fn(Era, &Facts) -> T,
) -> Result<Facts, LearnError> {
    if let Ok(facts) = &learnt {
        tell(era, facts).await;
    }
    learnt
}

/// Looks at one era with a child of its own.
async fn look(
    back: &Back,
    person: &Arc<Person>,
    era: Era,
    took: &LegacyTook,
) -> Result<Facts, LearnError> {
    look_with(back, person, era, took).await.0
}

/// The same, with the child if it said that it does not speak that era: it can be asked for the other.
async fn look_with<'b>(
    back: &'b Back,
    person: &Arc<Person>,
    era: Era,
    took: &LegacyTook,
) -> (Result<Facts, LearnError>, Option<Learner<'b>>) {
    let began = now();
    let mut learner = match Learner::start(back, person).await {
        Ok(learner) => learner,
        Err(why) => {
            if era == Era::Legacy {
                took.send_replace(Some(since(began)));
            }
            return (Err(why), None);
        }
    };
    let learnt = learner.learn(era, took).await;
    let is_refused = matches!(learnt, Err(LearnError::Refused(_)));
    (learnt, is_refused.then_some(learner))
}

/// Looks at an era, and at the other one if the server does not speak the first, or once it is `late`. The
/// child that refuses the first is asked for the other, too; what a child says that was asked for nothing else
/// is not kept waiting for that, and counts if that did not go well.
async fn look_around<T: Future<Output = ()>>(
    back: &Back,
    person: &Arc<Person>,
    first: Era,
    took: &LegacyTook,
    late: impl Future<Output = ()>,
    tell: impl Fn(Era, &Facts) -> T,
) -> (Result<Facts, LearnError>, Option<Result<Facts, LearnError>>) {
    let other = first.other();
    // Fires when a child of its own is looked at for the other era.
    let apart = CancellationToken::new();
    let mut together = std::pin::pin!(async {
        let (learnt, learner) = look_with(back, person, first, took).await;
        (told(learnt, first, &tell).await, learner)
    });
    let mut alone = std::pin::pin!(async {
        tokio::select! {
            () = late => apart.cancel(),
            () = apart.cancelled() => {}
        }
        told(look(back, person, other, took).await, other, &tell).await
    });
    let (of_first, learner) = tokio::select! {
        looked = &mut together => looked,
        of_other = &mut alone => return (together.await.0, Some(of_other)),
    };
    if of_first.is_ok() && !apart.is_cancelled() {
        return (of_first, None);
    }
    if let Some(mut learner) = learner {
        let mut again =
            std::pin::pin!(async { told(learner.learn(other, took).await, other, &tell).await });
        let of_other = tokio::select! {
            of_other = &mut again => match of_other {
                Err(_) => {
                    apart.cancel();
                    alone.await
                }
                learnt => learnt,
            },
            of_other = &mut alone => match of_other {
                // A server may allow one process at a time.
                Err(why) => again.await.map_err(|_| why),
                learnt => learnt,
            },
        };
        return (of_first, Some(of_other));
    }
    apart.cancel();
    (of_first, Some(alone.await))
}

/// A child that is asked what the server offers. One that is given up before it has said all is asked to end at
/// once, but not killed: it may be installing what it needs.
struct Learner<'b> {
    back: &'b Back,
    person: Arc<Person>,
    child: ReadyChild,
    began: Instant,
    is_asked: bool,
    trust: Trust,
}

impl Drop for Learner<'_> {
    fn drop(&mut self) {
        if self.is_asked {
            self.child.end();
        }
    }
}

impl<'b> Learner<'b> {
    async fn start(back: &'b Back, person: &Arc<Person>) -> Result<Self, LearnError> {
        let began = now();
        let child = back.start_to_learn(person).await;
        let child = child.map_err(|error| LearnError::Failed(chain(&error)))?;
        let person = Arc::clone(person);
        Ok(Self { back, person, child, began, is_asked: false, trust: Trust::Fresh })
    }

    /// Opens it in this era, and asks it for all that it offers.
    async fn learn(&mut self, era: Era, took: &LegacyTook) -> Result<Facts, LearnError> {
        self.is_asked = true;
        self.child.conversation.era = era;
        let learnt = match era {
            Era::Legacy => {
                let learnt = self.learn_legacy().await;
                took.send_replace(Some(since(self.began)));
                learnt
            }
            Era::Modern => self.learn_modern(took).await,
        };
        self.is_asked = false;
        self.trust = Trust::Doubtful;
        match learnt {
            Ok(facts) => Ok(facts.without_paths(&self.child)),
            Err(LearnError::Gone) => Err(LearnError::Failed(self.child.obituary().await)),
            Err(why) => Err(why),
        }
    }

    async fn learn_legacy(&mut self) -> Result<Facts, LearnError> {
        let mut greeted = self.back.greet(&mut self.child, HANDSHAKE).await;
        let is_silent =
            matches!(greeted, Err(StartError::Handshake { error: HandshakeError::Silent(_), .. }));
        if is_silent && self.learn_framing().await {
            greeted = Ok(());
        } else if is_silent {
            // It may take lines by now: the next try finds out.
            self.back.note_frames(false);
        }
        greeted.map_err(|error| match &error {
            StartError::Handshake { error: HandshakeError::Refused(_), .. } => {
                LearnError::Refused(chain(&error))
            }
            StartError::Handshake { error: HandshakeError::Silent(_), .. } => {
                LearnError::Slow(chain(&error))
            }
            _ => LearnError::Failed(chain(&error)),
        })?;
        let silent = || LearnError::Failed("it did not answer `initialize`".to_owned());
        let hello = self.child.hello.clone().ok_or_else(silent)?;
        let result = hello.raw(Slot::Result).unwrap_or(b"{}");
        let info = json::find(result, "serverInfo");
        learn_lists(&self.child, result, info, self.trust, self.back).await
    }

    /// Tries whether a server that said nothing takes `Content-Length` frames, with a child that has heard no line.
    async fn learn_framing(&mut self) -> bool {
        if !self.back.may_take_frames() {
            return false;
        }
        let Ok(mut child) = self.back.start_to_learn(&self.person).await else { return false };
        child.conversation.era = Era::Legacy;
        let is_framed = self.back.greet_in_frames(&mut child).await;
        if is_framed {
            self.child = child;
        }
        is_framed
    }

    /// A server of the legacy era alone may never answer, so this waits not much longer than the other
    /// era takes, or took: both have the same way to start.
    async fn learn_modern(&self, took: &LegacyTook) -> Result<Facts, LearnError> {
        let mut took = took.subscribe();
        let late = async {
            let took = took.wait_for(Option::is_some).await.map_or(None, |took| *took);
            let until = self.began + took.unwrap_or_default() + PROBE;
            tokio::time::sleep_until(until.into()).await;
        };
        let discovered = tokio::select! {
            discovered = ask(&self.child, method::DISCOVER, "{}") => discovered?,
            () = late => {
                let (seconds, method) = (PROBE.as_secs(), method::DISCOVER);
                let text = format!("it did not answer `{method}` within {seconds} s of the other era");
                return Err(LearnError::Slow(text));
            }
        };
        if !speaks_newest(&discovered) {
            let text = format!("it does not speak {}", Revision::NEWEST_MODERN);
            return Err(LearnError::Refused(text));
        }
        let result = discovered.raw(Slot::Result).unwrap_or(b"{}");
        let info = discovered.raw(Slot::ResultServerInfo);
        learn_lists(&self.child, result, info, self.trust, self.back).await
    }
}
