//! What a run offers to the CLI: the tools of the program, and the files by which it learns of them.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::control::SdkServer;
use super::error::ModelError;
use super::message::Started;
use super::registered::Registered;
use super::request::Request;
use super::settings::{Settings, Transport};
use crate::ipc::{Place, Session};
use crate::protocol::IpcError;
use crate::tools::Tools;

/// What a run offers.
pub(super) struct Offer {
    pub(super) files: Files,
    /// The tools as a server of the kind `sdk`.
    pub(super) sdk: Option<SdkServer>,
    pub(super) offered: Option<Offered>,
}

impl Offer {
    pub(super) fn new(
        registered: Option<Registered>,
        settings: &Settings,
        place: Place,
        bridge: &Path,
        to_cli: &mpsc::Sender<Bytes>,
    ) -> Result<Self, ModelError> {
        let Some(registered) = registered else {
            return Ok(Self { files: Files::Place(place), sdk: None, offered: None });
        };
        let transport = registered.transport()?;
        let Registered { tools, options } = registered;
        let (files, sdk) = match transport {
            Transport::Sdk => {
                let sdk = SdkServer::new(&options.server_name, &tools, to_cli);
                (Files::Place(place), Some(sdk))
            }
            Transport::Auto | Transport::Stdio => {
                (Files::Session(Session::start_with(place, tools.clone())?), None)
            }
        };
        let offered = Offered {
            entry: files.entry(bridge, &options.server_name, options.always_load),
            server: options.server_name,
            names: tools.names(),
            tools,
            disallowed: settings.disallowed_tools.clone(),
            bridge: bridge.to_owned(),
        };
        Ok(Self { files, sdk, offered: Some(offered) })
    }
}

/// What a run has on disk.
#[derive(Debug)]
pub(super) enum Files {
    /// The socket for bridges among it.
    Session(Session),
    Place(Place),
}

/// The tools that the CLI should have.
#[derive(Debug)]
pub(super) struct Offered {
    pub(super) server: String,
    /// Its entry in the configuration of the CLI.
    pub(super) entry: Value,
    tools: Tools,
    names: Vec<String>,
    /// Tools that the user does not want.
    disallowed: Vec<String>,
    bridge: PathBuf,
}

impl Files {
    /// Where they are.
    pub(super) fn place(&self) -> &Place {
        match self {
            Self::Session(session) => session.place(),
            Self::Place(place) => place,
        }
    }

    /// The entry of the server in the configuration of the CLI.
    fn entry(&self, bridge: &Path, server: &str, always_load: bool) -> Value {
        let mut entry = match self {
            Self::Session(session) => session.mcp_server_config(bridge),
            Self::Place(_) => json!({"type": "sdk", "name": server}),
        };
        if always_load {
            entry["alwaysLoad"] = true.into();
        }
        entry
    }
}

impl Offered {
    /// The CLI goes on without tools that it cannot reach, and says nothing but this.
    pub(super) fn check(&self, started: &Started) -> Result<(), IpcError> {
        let server = &self.server;
        let hint = format!(
            "; the bridge is `{}`, and the CLI tells more with `--debug-file FILE` in `extra_args`",
            self.bridge.display()
        );
        let refuse = |what: String| Err(IpcError::BridgeStartup(what + &hint));
        match started.servers.iter().find(|(name, _)| name == server) {
            None => return refuse(format!("the CLI has dropped the server `{server}`")),
            Some((_, status)) if status != "connected" => {
                return refuse(format!(
                    "the CLI has no connection to the server `{server}`: {status}"
                ));
            }
            Some(_) => {}
        }
        // Tools that were removed since then are not missed.
        let still = self.tools.names();
        let is_missing = |name: &&String| {
            let full = format!("mcp__{server}__{name}");
            let is_unwanted = || self.disallowed.iter().any(|rules| is_named(&full, rules));
            still.contains(name) && !started.tools.contains(&full) && !is_unwanted()
        };
        let missing: Vec<_> = self.names.iter().filter(is_missing).cloned().collect();
        if missing.is_empty() {
            return Ok(());
        }
        refuse(format!(
            "the CLI does not have these tools of the server `{server}`: {}",
            missing.join(", ")
        ))
    }
}

/// Whether rules of the CLI, separated by commas, name this tool of a server.
fn is_named(tool: &str, rules: &str) -> bool {
    rules.split(',').map(str::trim).any(|rule| {
        let rule = rule.split_once('(').map_or(rule, |(name, _)| name);
        match rule.strip_suffix('*') {
            Some(beginning) => tool.starts_with(beginning),
            None => rule == tool || (!rule.is_empty() && tool.starts_with(&format!("{rule}__"))),
        }
    })
}

/// The tools that the request wants.
pub(super) fn filtered(
    registered: Option<Registered>,
    request: &Request,
) -> Result<Option<Registered>, ModelError> {
    let Some(wanted) = &request.tools else { return Ok(registered) };
    if wanted.is_empty() {
        return Ok(None);
    }
    let Some(Registered { tools, options }) = registered else {
        return Err(ModelError::ToolsetNotRegistered { requested: wanted.clone() });
    };
    let available = tools.names();
    let missing: Vec<_> = wanted.iter().filter(|name| !available.contains(name)).cloned().collect();
    if !missing.is_empty() {
        return Err(ModelError::ToolNotFound { missing, available });
    }
    Ok(Some(Registered { tools: tools.only(wanted), options }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_tools() {
        let tool = "mcp__shop__order_now";
        for rules in
            ["mcp__shop__order_now", "mcp__shop", "mcp__shop__*", "Bash, mcp__shop__order*"]
        {
            assert!(is_named(tool, rules), "{rules}");
        }
        for rules in ["", "Bash", "mcp__shop__order", "mcp__shopping", "mcp__other__*"] {
            assert!(!is_named(tool, rules), "{rules}");
        }
    }
}
