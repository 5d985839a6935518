//! How a bridge to an application is at one moment. Plain data, collected for each look at it.

use std::time::Duration;

use serde_json::{Map, Value, json};

/// A bridge to an application, at one moment.
#[derive(Debug, Clone, Default)]
pub struct AppStatus {
    /// Where the application stands.
    pub standing: AppStanding,
    /// How long it has stood so.
    pub since: Duration,
    /// How often it was connected.
    pub connections: u64,
    /// The era in which it is spoken to.
    pub era: Option<&'static str>,
    /// The process of the bridge that has the connection, if that is another one.
    pub through: Option<u32>,
    /// How long it takes to answer by itself.
    pub round_trip: Option<Duration>,
    /// The clients that use the connection here, other bridges among them.
    pub clients: usize,
    /// Calls of tools that are over, and those of them that failed.
    pub made: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// Calls under way.
    pub open: usize,
    /// Calls that wait for their turn.
    pub waiting: usize,
    /// How often each heal was needed, by code.
    pub heals: Vec<(&'static str, u64)>,
    /// How many tools are known.
    pub tools: usize,
    /// How long they have been.
    pub learnt: Option<Duration>,
    /// Whether they are those of the application as it runs now.
    pub is_current: bool,
    /// How long the bridge has run.
    pub uptime: Duration,
}

/// Where an application stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AppStanding {
    /// No client has said anything yet, so it is not looked for.
    #[default]
    Idle,
    /// It is looked for the first time.
    Looking,
    /// It is there.
    Connected,
    /// It is not.
    Away {
        /// Why.
        why: String,
        /// What to do about it.
        advice: String,
    },
}

impl AppStatus {
    /// All of it.
    pub fn to_json(&self) -> Value {
        let (state, why, advice) = match &self.standing {
            AppStanding::Idle => ("idle", None, None),
            AppStanding::Looking => ("looking", None, None),
            AppStanding::Connected => ("connected", None, None),
            AppStanding::Away { why, advice } => ("away", Some(why), Some(advice)),
        };
        let heals: Map<_, _> =
            self.heals.iter().map(|(code, count)| ((*code).to_owned(), json!(count))).collect();
        json!({
            "state": state,
            "why": why,
            "advice": advice,
            "since": self.since.as_secs(),
            "uptime": self.uptime.as_secs(),
            "connections": self.connections,
            "era": self.era,
            "through": self.through,
            "round_trip_ms": self.round_trip.map(|time| time.as_secs_f64() * 1000.0),
            "clients": self.clients,
            "calls": {
                "made": self.made, "failed": self.failed, "open": self.open, "waiting": self.waiting,
            },
            "heals": heals,
            "catalogue": {
                "tools": self.tools,
                "age": self.learnt.map(|age| age.as_secs()),
                "is_current": self.is_current,
            },
        })
    }
}
