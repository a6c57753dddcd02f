//! Receipts and slots as texts for clients, and what they send back.

use std::time::Duration;

use http::StatusCode;
use plimsoll::{Charge, Error, Key, Policy, Receipt, store::Source};

use super::{
    Api,
    charges::{self, Line},
    problem::Problem,
};
use crate::{
    access::Client,
    receipts::{Content, Kind, ReceiptError},
};

/// Returns the text of a receipt. `text_of` returns the text of the key of a charge.
pub(super) fn issue(
    api: &Api,
    kind: Kind,
    client: &Client,
    validity: Duration,
    receipt: &Receipt,
    text_of: impl Fn(&Charge<'static>) -> String,
) -> String {
    let receipts = &api.parts().receipts;
    receipts.issue(kind, client.name(), validity, receipt, |line| text_of(line.charge()))
}

/// The most bytes of a receipt beside the texts in it: its numbers, names of fields and times, and those of each
/// line with its quota.
const HEAD_BYTES: usize = 256;
const LINE_BYTES: usize = 256;

/// The bytes of the signature in base64url, and the dot before it.
const SIGNATURE_BYTES: usize = 44;

/// The most bytes of a settlement beside its receipt and the names of policies: its fields, and the number of each
/// policy.
const BODY_BYTES: usize = 64;
const UNITS_BYTES: usize = 24;

/// Returns the problem of charges whose receipt could be longer than a body, so that the client could not send it
/// back.
pub(super) fn require_short(api: &Api, client: &Client, lines: &[&Line]) -> Result<(), Problem> {
    let max = api.parts().max_body;
    let (mut content, mut units) = (HEAD_BYTES + json_bytes(client.name()), BODY_BYTES);
    for line in lines {
        let policy = json_bytes(line.registered.policy().name());
        content += LINE_BYTES + policy + json_bytes(&line.text);
        units += UNITS_BYTES + policy;
    }
    // Base64url has 4 bytes for 3.
    let body = content.div_ceil(3) * 4 + SIGNATURE_BYTES + units;
    if body <= max {
        return Ok(());
    }
    let detail =
        "The receipt of these keys could be longer than a body, and could not be sent back";
    let allowed = format!("shorter keys or fewer charges, so that {body} bytes are at most {max}");
    Err(Problem::invalid(detail, allowed))
}

/// Returns the bytes of a text in JSON.
fn json_bytes(text: &str) -> usize {
    serde_json::to_vec(text).map_or(usize::MAX / 1_024, |json| json.len())
}

/// A receipt whose signature is right, with the policies and the keys of its lines.
pub(super) struct Opened {
    content: Content,
    source: Source,
    keys: Vec<(Policy, Key)>,
}

impl Opened {
    /// Opens a receipt of this kind.
    ///
    /// # Errors
    ///
    /// Returns the problem of a receipt that is forged, or that belongs to another client or instance, and of a
    /// policy that the client may not use any more.
    pub(super) fn new(api: &Api, client: &Client, kind: Kind, text: &str) -> Result<Self, Problem> {
        let (content, source) = api.parts().receipts.open(text, kind, client.name())?;
        let find = |policy: &str, text: &str| {
            let registered = charges::policy(&api.parts().registry, client, policy)?;
            let key = charges::key(&registered, text)?;
            Ok((registered.policy().clone(), key))
        };
        let keys = content.lines.iter().map(|line| find(&line.policy, &line.key));
        let keys = keys.collect::<Result<_, Problem>>()?;
        Ok(Self { content, source, keys })
    }

    /// Returns the problem of a policy that the receipt does not have.
    pub(super) fn require_policies<'a>(
        &self,
        mut names: impl Iterator<Item = &'a String>,
    ) -> Result<(), Problem> {
        let has = |name: &String| self.content.lines.iter().any(|line| line.policy == *name);
        let Some(name) = names.find(|name| !has(name)) else { return Ok(()) };
        let shown: String = name.chars().take(64).collect();
        let policies: Vec<_> = self.content.lines.iter().map(|line| &*line.policy).collect();
        let detail = format!("The receipt has no charge under the policy {shown:?}");
        Err(Problem::invalid(detail, policies.join(", ")))
    }

    /// Returns the text of the key of a charge, as the client has sent it.
    pub(super) fn text_of(&self, charge: &Charge<'_>) -> String {
        let mut lines = self.content.lines.iter().zip(&self.keys);
        let found = lines
            .find(|(_, (policy, key))| charge.key() == key && charge.policy().is_clone_of(policy));
        found.map(|(line, _)| line.key.clone()).unwrap_or_default()
    }

    /// Records that the receipt is used now, and restores it.
    ///
    /// # Errors
    ///
    /// Returns the problem of a receipt that was used before or has expired, and of a store that cannot answer.
    pub(super) async fn claim(&self, api: &Api) -> Result<Receipt, Problem> {
        let receipt = self.content.restore(self.source, &self.keys);
        let receipt = receipt.ok_or(ReceiptError::Forged)?;
        api.parts().receipts.claim(&self.content).await?;
        Ok(receipt)
    }

    /// Returns the problem of an error, after which the receipt can be used again if nothing was changed.
    pub(super) async fn withdraw_on_error<T>(
        &self,
        api: &Api,
        result: Result<T, Error>,
    ) -> Result<T, Problem> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => {
                api.parts().receipts.withdraw(&self.content, &error).await;
                Err(error.into())
            }
        }
    }
}

impl From<ReceiptError> for Problem {
    fn from(error: ReceiptError) -> Self {
        let allowed = "a receipt or a slot as this service has answered it";
        match error {
            ReceiptError::Forged => {
                let detail = "This service has not signed the receipt";
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Not a receipt", detail)
                    .allowed(allowed)
            }
            ReceiptError::OtherClient => {
                let detail = "Another client has this receipt";
                Self::new(StatusCode::FORBIDDEN, "Another client's receipt", detail)
            }
            ReceiptError::Used => {
                Self::new(StatusCode::CONFLICT, "Used before", "The receipt was used before")
            }
            ReceiptError::Expired => {
                let detail = "The receipt has expired. Its units come back by themselves";
                Self::new(StatusCode::GONE, "Expired", detail)
            }
            ReceiptError::OtherInstance => {
                let detail = "The units are in the memory of another process. \
                              They come back by themselves";
                Self::new(StatusCode::GONE, "Out of reach", detail)
            }
            ReceiptError::Store(error) => error.into(),
        }
    }
}
