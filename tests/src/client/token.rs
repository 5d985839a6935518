//! Tokens as Open WebUI signs them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

/// A JSON web token with these claims, signed with `secret` (HS256).
///
/// # Panics
///
/// Never: a secret of any length signs.
pub fn sign_token(secret: &str, claims: &Value) -> String {
    let encode = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
    let header = json!({"alg": "HS256", "typ": "JWT"}).to_string();
    let signed = format!("{}.{}", encode(header.as_bytes()), encode(claims.to_string().as_bytes()));
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any length will do");
    mac.update(signed.as_bytes());
    format!("{signed}.{}", encode(&mac.finalize().into_bytes()))
}
