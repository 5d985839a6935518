//! What is wanted of an examination.

use std::time::Duration;

use pontoon_schema::Profile;
use serde_json::Value;

/// How long a server may take to answer something small, at most.
const SMALL: Duration = Duration::from_secs(10);

/// Modes of a service that its caller has to choose: where it is not, they say nothing of a server.
const CHOSEN: [&str; 1] = ["openai-strict"];

/// What is wanted of an examination.
#[derive(Debug, Clone)]
pub struct ExamOptions {
    /// How long a start, or a call of a tool, may take.
    pub patience: Duration,
    /// How long a message it is sent to see how it takes it; zero for none.
    pub probe_size: usize,
    /// Tools to call, with their arguments.
    pub calls: Vec<(String, Value)>,
    /// The client to judge for; all of them otherwise, but for modes that have to be chosen.
    pub profile: Option<&'static Profile>,
}

impl ExamOptions {
    /// How long something small may take.
    pub(super) fn small(&self) -> Duration {
        self.patience.min(SMALL)
    }

    /// The clients to judge for.
    pub(super) fn profiles(&self) -> Vec<&'static Profile> {
        match self.profile {
            Some(profile) => vec![profile],
            None => clients(),
        }
    }
}

/// All clients, but for modes that have to be chosen.
pub(super) fn clients() -> Vec<&'static Profile> {
    let is_client = |profile: &&Profile| {
        let name = profile.name.as_str();
        !matches!(name, "none" | "common") && !CHOSEN.contains(&name)
    };
    Profile::all().iter().filter(is_client).collect()
}
