//! The text of a receipt: its parts as JSON, and their HMAC-SHA256 (RFC 2104), both in base64url.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::Content;

/// The name of the format, which is a part of what is signed. Another format has another name, so that no text
/// is valid as both.
const FORMAT: &[u8] = b"plimsoll receipt 1\0";

/// Signs receipts, and checks signatures in constant time.
#[derive(Clone)]
pub(super) struct Signer(Hmac<Sha256>);

impl Signer {
    /// Creates a signer with a secret of any length.
    pub(super) fn new(secret: &[u8]) -> Self {
        // HMAC takes keys of each length: a long one is hashed first.
        let mut mac = Hmac::new_from_slice(secret).expect("a key of any length");
        mac.update(FORMAT);
        Self(mac)
    }

    /// Returns the text of a receipt.
    pub(super) fn sign(&self, content: &Content) -> String {
        let content = serde_json::to_vec(content).unwrap_or_default();
        let mut mac = self.0.clone();
        mac.update(&content);
        let mut text = URL_SAFE_NO_PAD.encode(&content);
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(mac.finalize().into_bytes(), &mut text);
        text
    }

    /// Returns the parts of a receipt, or `None` if this service did not sign the text.
    pub(super) fn open(&self, text: &str) -> Option<Content> {
        let (content, signature) = text.split_once('.')?;
        let content = URL_SAFE_NO_PAD.decode(content).ok()?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let mut mac = self.0.clone();
        mac.update(&content);
        // Nothing is parsed before the signature is right.
        mac.verify_slice(&signature).ok()?;
        serde_json::from_slice(&content).ok()
    }
}
