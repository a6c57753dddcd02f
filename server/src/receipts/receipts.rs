//! The receipts of the service.

use std::{sync::Arc, time::Duration};

use plimsoll::{Error, Limiter, Receipt, ReceiptLine, Timestamp, store::Source};

use super::{Claim, Content, Issued, Kind, claims::Claims, signer::Signer};
use crate::random;

/// Issues receipts as texts, and accepts each once.
#[derive(Clone)]
pub(crate) struct Receipts(Arc<State>);

struct State {
    signer: Signer,
    claims: Claims,
    /// The number of this process, which no other process has.
    instance: u64,
    lifetime: Duration,
}

/// The reason why a receipt cannot be used.
#[derive(Debug)]
pub(crate) enum ReceiptError {
    /// This service did not sign it, or it is of another kind.
    Forged,
    /// It belongs to another client.
    OtherClient,
    /// It was used before.
    Used,
    /// It is no longer valid.
    Expired,
    /// The units are in the memory of another instance, or of an earlier process.
    OtherInstance,
    /// The store cannot answer.
    Store(Error),
}

impl Receipts {
    /// Creates the receipts of this process. Instances with the same secret accept each other's receipts.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy of claims is not valid.
    pub(crate) fn new(
        limiter: &Limiter,
        is_shared: bool,
        secret: Option<&str>,
        lifetime: Duration,
    ) -> Result<Self, Error> {
        let signer = match secret {
            Some(secret) => Signer::new(secret.as_bytes()),
            None => Signer::new(&random::bytes::<32>()),
        };
        let claims = Claims::new(limiter, is_shared)?;
        let instance = u64::from_be_bytes(random::bytes());
        Ok(Self(Arc::new(State { signer, claims, instance, lifetime })))
    }

    /// Returns the time for which a reservation can be settled or refunded.
    pub(crate) fn lifetime(&self) -> Duration {
        self.0.lifetime
    }

    /// Returns the text of a receipt, for one client. `key_text` returns the text of the key of a line.
    pub(crate) fn issue(
        &self,
        kind: Kind,
        client: &str,
        validity: Duration,
        receipt: &Receipt,
        key_text: impl Fn(&ReceiptLine) -> String,
    ) -> String {
        let nonce = random::bytes::<16>();
        let (high, low) = nonce.split_at(8);
        let half = |half: &[u8]| half.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
        let issued = Issued {
            kind,
            client,
            nonce: [half(high), half(low)],
            instance: self.0.instance,
            validity: u64::try_from(validity.as_micros()).unwrap_or(u64::MAX),
        };
        self.0.signer.sign(&Content::new(&issued, receipt, key_text))
    }

    /// Returns the parts of a receipt that this client may use.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is forged, or belongs to another client or instance.
    pub(crate) fn open(
        &self,
        text: &str,
        kind: Kind,
        client: &str,
    ) -> Result<(Content, Source), ReceiptError> {
        let content = self.0.signer.open(text).filter(|content| content.kind == kind);
        let content = content.ok_or(ReceiptError::Forged)?;
        if content.client != client {
            return Err(ReceiptError::OtherClient);
        }
        let source = content.source_at(self.0.instance).ok_or(ReceiptError::OtherInstance)?;
        Ok((content, source))
    }

    /// Records that the receipt is used now.
    ///
    /// # Errors
    ///
    /// Returns an error if it was used before or has expired, or if the store cannot answer.
    pub(crate) async fn claim(&self, content: &Content) -> Result<(), ReceiptError> {
        let validity = Duration::from_micros(content.validity);
        let claim = self.0.claims.claim(content.nonce, validity).await;
        let ends = Timestamp::from_micros(content.time.saturating_add(content.validity));
        match claim.map_err(ReceiptError::Store)? {
            Claim::First(now) | Claim::Again(now) if now >= ends => Err(ReceiptError::Expired),
            Claim::First(_) => Ok(()),
            Claim::Again(_) => Err(ReceiptError::Used),
        }
    }

    /// Makes a claimed receipt valid again if `cause` has refunded and charged nothing.
    pub(crate) async fn withdraw(&self, content: &Content, cause: &Error) {
        self.0.claims.withdraw(content.nonce, cause).await;
    }
}
