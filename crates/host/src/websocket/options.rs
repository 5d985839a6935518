//! What an application says about its WebSocket: where it is, who may use it, and who hears of it.

use std::io;
use std::path::PathBuf;

use uuid::Uuid;

use crate::tools::ToolValidationError;

/// How tools are served over WebSocket.
///
/// ```
/// use pontoon_host::WebSocketOptions;
///
/// let options = WebSocketOptions { port: 7400, ..WebSocketOptions::default() };
/// ```
#[derive(Debug, Clone)]
pub struct WebSocketOptions {
    /// The port on 127.0.0.1 and ::1; zero chooses one.
    pub port: u16,
    /// What a client has to show.
    pub token: AppToken,
    /// The origins of the web pages that may connect, such as `http://localhost:3000`. Pages of others are refused,
    /// token or not; a client that is no web page has no origin.
    pub origins: Vec<String>,
    /// How many clients may be connected at once.
    pub max_clients: usize,
    /// Where clients find the address and the token.
    pub announce: Announce,
}

impl Default for WebSocketOptions {
    fn default() -> Self {
        Self {
            port: 0,
            token: AppToken::Random,
            origins: Vec::new(),
            max_clients: 64,
            announce: Announce::Usual,
        }
    }
}

/// What a client has to show: `Authorization: Bearer TOKEN`, or, since a web page cannot set headers, the sub-protocol
/// `bearer.TOKEN` beside `mcp`.
#[derive(Clone, Default)]
pub enum AppToken {
    /// A token that is made anew each time.
    #[default]
    Random,
    /// This token, of at least 16 letters, digits and signs. If web pages are to show it: letters, digits, `-._~`.
    Given(String),
    /// Nothing: every program on this machine may call the tools, also those of other users.
    NotNeeded,
}

/// Where an application leaves word of its address and its token: a file for its owner only, gone when it ends.
#[derive(Debug, Clone, Default)]
pub enum Announce {
    /// In `$XDG_RUNTIME_DIR/pontoon/apps`, or `~/.local/state/pontoon/apps`. Where that cannot be written, nowhere.
    #[default]
    Usual,
    /// In this folder.
    In(PathBuf),
    /// Nowhere.
    Nowhere,
}

/// Why tools cannot be served over WebSocket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebSocketError {
    /// The tools do not go together.
    #[error(transparent)]
    Tools(#[from] ToolValidationError),
    /// The token cannot be used.
    #[error(
        "the token has to have 16 to 512 letters, digits and signs, without space, comma or quote"
    )]
    Token,
    /// What was given as an origin is none.
    #[error("`{0}` is no origin: give a scheme and a host, such as `http://localhost:3000`")]
    Origin(String),
    /// The port cannot be listened on.
    #[error(
        "port {port} cannot be listened on: does the application run already, or another one there?"
    )]
    Bind {
        /// The port.
        port: u16,
        /// Why not.
        source: io::Error,
    },
    /// The file with the address cannot be written.
    #[error("the address cannot be written to {}", path.display())]
    Announce {
        /// The file, or its folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There are no threads for it.
    #[error("no thread can be started")]
    Thread(#[source] io::Error),
}

impl AppToken {
    /// The token itself, if one is needed.
    pub(super) fn settle(self) -> Result<Option<String>, WebSocketError> {
        match self {
            Self::NotNeeded => Ok(None),
            Self::Random => {
                Ok(Some(format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())))
            }
            Self::Given(token) => {
                let is_plain =
                    |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b',' | b'"' | b'\\');
                let is_usable = (16..=512).contains(&token.len()) && token.bytes().all(is_plain);
                is_usable.then_some(Some(token)).ok_or(WebSocketError::Token)
            }
        }
    }
}

impl std::fmt::Debug for AppToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Random => "Random",
            Self::Given(_) => "Given(..)",
            Self::NotNeeded => "NotNeeded",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_and_never_shown() {
        let random = || AppToken::Random.settle().unwrap().unwrap();
        assert_eq!(random().len(), 64);
        assert_ne!(random(), random());
        assert_eq!(AppToken::NotNeeded.settle().unwrap(), None);
        for bad in
            ["", "too-short", "with a space in it", "comma,comma,comma,comma", "ümläute-ümläute-ü"]
        {
            assert!(AppToken::Given(bad.to_owned()).settle().is_err(), "{bad}");
        }
        let given = AppToken::Given("a-good-secret-token".to_owned());
        assert_eq!(given.clone().settle().unwrap().as_deref(), Some("a-good-secret-token"));
        let options = WebSocketOptions { token: given, ..WebSocketOptions::default() };
        assert!(!format!("{options:?}").contains("secret"));
    }
}
