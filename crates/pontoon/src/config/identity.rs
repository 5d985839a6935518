//! The headers in which a front end says who calls, and what to do where it does not.

use super::lifetime::SessionKey;
use super::server::Server;

/// The names of the headers, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdentityHeaders {
    /// The user.
    pub user: String,
    /// The user's e-mail address.
    pub email: String,
    /// The user's name, percent-encoded.
    pub name: String,
    /// The user's role.
    pub role: String,
    /// The chat.
    pub chat: String,
    /// The user, signed.
    pub jwt: String,
}

/// The name of a header as Open WebUI spells it, which would send it twice if it were given another spelling.
pub fn as_spelt(name: &str) -> String {
    let part = |part: &str| match part {
        "openwebui" => "OpenWebUI".to_owned(),
        part => {
            let mut letters = part.chars();
            let first = letters.next().map(|it| it.to_ascii_uppercase());
            first.into_iter().chain(letters).collect()
        }
    };
    name.split('-').map(part).collect::<Vec<_>>().join("-")
}

impl IdentityHeaders {
    /// How to say who asks, for the person who set up a front end that does not. `is_signed`: only a
    /// signed token counts.
    pub fn ways_to_say_who(&self, is_signed: bool) -> String {
        let [user, chat, jwt] = [&self.user, &self.chat, &self.jwt].map(|name| as_spelt(name));
        let forward = match is_signed {
            true => format!(
                "Open WebUI must sign who asks (the header {jwt}), because MCPO_OWUI_JWT_SECRET is set and what is not \
                 signed names nobody: set ENABLE_FORWARD_USER_INFO_HEADERS=true and \
                 FORWARD_USER_INFO_HEADER_JWT_SECRET to the same secret there"
            ),
            false => format!(
                "in Open WebUI set ENABLE_FORWARD_USER_INFO_HEADERS=true, best with \
                 FORWARD_USER_INFO_HEADER_JWT_SECRET there and the same secret as MCPO_OWUI_JWT_SECRET here, or give \
                 the connection the headers {user}: {{{{USER_ID}}}} and {chat}: {{{{CHAT_ID}}}}"
            ),
        };
        format!(
            "{forward}; for one person, such as with Claude Code, give the key a name: MCPO_API_KEYS=me=KEY in place \
             of MCPO_API_KEY; or let all who show the key share one process and folder: \"session_key\": \"credential\""
        )
    }
}

/// What is worth knowing before the first call where there is a key without a name: which servers
/// it does not open by itself, and the ways that do.
pub fn note_on_people<'s>(
    servers: impl IntoIterator<Item = &'s Server>,
    ways: &str,
) -> Option<String> {
    let needs = |server: &&Server| server.has_sessions() && server.session_key == SessionKey::Auto;
    let names = servers.into_iter().filter(needs).map(|server| format!("`{}`", server.name));
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    let (first, more) = names.split_first()?;
    let (each, names) = match more {
        [] => ("keeps", first.clone()),
        _ => ("keep", names.join(", ")),
    };
    Some(format!(
        "{names} {each} a process or a folder for each person, and the key of MCPO_API_KEY is not one person: a call \
         that shows it and says neither user nor chat nor session is refused. {}{}",
        ways[..1].to_uppercase(),
        &ways[1..]
    ))
}

#[cfg(test)]
mod tests {
    use super::super::lifetime::WorkspaceScope;
    use super::super::settings::BridgeSettings;
    use super::*;

    #[test]
    fn servers_that_keep_something_for_people_are_named() {
        let server = |name: &str| Server::new(name.parse().unwrap(), Ok("/bin/a".into()), vec![]);
        let kept = |name: &str| Server { workspace: WorkspaceScope::Session, ..server(name) };
        let shared = Server { session_key: SessionKey::Credential, ..kept("shared") };
        let ways = BridgeSettings::unset().identity.ways_to_say_who(false);
        let note = |servers: &[Server]| note_on_people(servers, &ways);
        assert_eq!(note(&[server("plain"), shared.clone()]), None);
        let one = note(&[server("plain"), kept("b"), shared]).unwrap();
        assert!(one.starts_with("`b` keeps a process"), "{one}");
        assert!(one.contains("In Open WebUI set ENABLE_"), "{one}");
        assert!(one.contains("X-OpenWebUI-Chat-Id: {{CHAT_ID}}"), "{one}");
        let two = note(&[kept("b"), kept("a")]).unwrap();
        assert!(two.starts_with("`a`, `b` keep a process"), "{two}");
    }
}
