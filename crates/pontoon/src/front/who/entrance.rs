//! The way in: from the headers of a request to its caller, or to the refusal.

use std::net::IpAddr;

use hyper::HeaderMap;

use super::super::refusal::Refusal;
use super::auth::{Area, Auth, Denied, Pass};
use super::caller::Caller;
use super::guard::Guard;
use super::identity::{Identities, Identity};
use super::origin::Origins;
use super::token::Verifier;
use crate::config::{BridgeSettings, Server};
use crate::observe::trace::Trace;

/// Who may come in, and as whom.
#[derive(Debug)]
pub struct Entrance {
    /// Which hosts and origins may be named.
    pub guard: Guard,
    /// The keys that open the bridge.
    pub auth: Auth,
    /// How requests are identified.
    pub identities: Identities,
    /// Where clients reach us.
    pub origins: Origins,
}

/// Who makes a request, before it is known which server it is for.
#[derive(Debug)]
pub struct Visitor<'e> {
    /// What could be believed.
    pub identity: Identity,
    pass: Option<Pass<'e>>,
}

impl Entrance {
    /// The entrance that the configuration describes.
    pub fn new(settings: &BridgeSettings) -> Self {
        let verifier = settings
            .owui_jwt_secret
            .clone()
            .map(|secret| Verifier { secret, max_age: settings.owui_jwt_max_age });
        let (trusted, names) = (settings.trusted_proxies.clone(), settings.identity.clone());
        let guard =
            Guard::new(&settings.listen, &settings.allowed_hosts, &settings.allowed_origins);
        Self {
            guard: if settings.any_host { guard.of_any_host() } else { guard },
            auth: Auth::new(&settings.api_keys, settings.strict_auth),
            identities: Identities::new(trusted, names, verifier, settings.any_identity),
            origins: Origins::new(&settings.base_url, settings.scheme()),
        }
    }

    /// Who makes a request for this; `words` are those in which one is told that it may not.
    ///
    /// # Errors
    ///
    /// A request without a key where one is needed, or with an identity that cannot be believed.
    pub fn visitor(
        &self,
        headers: &HeaderMap,
        peer: IpAddr,
        area: Area,
        words: fn(Denied) -> Refusal,
    ) -> Result<Visitor<'_>, Refusal> {
        let pass = self.auth.check(headers, area).map_err(words)?;
        let identity = self.identities.identify(headers, peer, pass.map(|pass| pass.key));
        let identity = identity.map_err(|refusal| refusal.asked_by(key_words(pass)))?;
        Ok(Visitor { identity, pass })
    }

    /// The visitor as the caller of this server.
    pub fn caller(
        &self,
        visitor: Visitor<'_>,
        headers: &HeaderMap,
        peer: IpAddr,
        trace: Trace,
        server: &Server,
    ) -> Caller {
        let origin = self.origins.of(headers, self.identities.is_trusted(peer));
        // Without a key of ours, people are told apart by what they show there.
        let ours = visitor.pass.map_or(&["authorization"][..], |pass| pass.headers);
        Caller::new(visitor.identity, headers, ours, origin, Some(trace), server)
    }
}

impl Visitor<'_> {
    /// Whether it showed a key.
    pub fn has_key(&self) -> bool {
        self.pass.is_some()
    }

    /// By which key it came, for the log.
    pub fn words(&self) -> String {
        key_words(self.pass)
    }
}

fn key_words(pass: Option<Pass<'_>>) -> String {
    pass.map_or_else(|| "unknown".to_owned(), |pass| format!("key {}", pass.key))
}
