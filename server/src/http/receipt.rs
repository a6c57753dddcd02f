//! Receipts and slots as texts for clients, and what they send back.

use std::time::Duration;

use http::StatusCode;
use plimsoll::{Charge, Error, Key, Policy, Receipt, store::Source};

use super::{Api, charges, problem::Problem};
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
