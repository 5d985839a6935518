//! The headers in which a trusted proxy says who calls.

/// The names of the headers, in lower case. The defaults are those of Open WebUI.
#[derive(Debug, Clone, PartialEq, Eq)]
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

impl Default for IdentityHeaders {
    fn default() -> Self {
        let name = |rest: &str| format!("x-openwebui-{rest}");
        Self {
            user: name("user-id"),
            email: name("user-email"),
            name: name("user-name"),
            role: name("user-role"),
            chat: name("chat-id"),
            jwt: name("user-jwt"),
        }
    }
}
