//! Receipts and slots: texts that clients keep and send back. Each is signed, valid for a time, and used once.
//!
//! The text has the parts of a [receipt](Receipt) of the library as JSON, and their HMAC-SHA256 (RFC 2104),
//! both in base64url.
//!
//! The store that has the budgets records the use of a receipt: one unit under a number that only this receipt has, with
//! a limit of one unit in the time for which it is valid. A sliding log admits no second unit in any such window, and
//! after it the receipt has expired. So the record can be forgotten then, and each key has a time to live.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, Mac};
use http::StatusCode;
use plimsoll::{
    Algorithm, Charge, Decision, Error, Key, Limiter, OnFailure, Policy, Quota,
    clock::Timestamp,
    decision::{Receipt, ReceiptLine},
    error::Effect,
    store::{Mark, Source},
};
use plimsoll_control::Registry;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::{
    policies::{self, MAX_NAME_CHARS},
    problem::Problem,
};
use crate::{access::Client, random};

/// The name of the [policy](Policy) that counts the uses of receipts, in metrics and in the store.
const USES: &str = "plimsoll.receipts";

/// The name of the format, which is a part of the signed text. Another format has another name, so that no text
/// is valid as both.
const FORMAT: &[u8] = b"plimsoll receipt 2\0";

/// The sources of [receipts](Receipt).
const SOURCES: [Source; 5] =
    [Source::Local, Source::Fallback, Source::Shared, Source::Leased, Source::Region];

/// Issues receipts as texts, and accepts each once.
pub(super) struct Receipts {
    mac: Hmac<Sha256>,
    limiter: Limiter,
    uses: Policy,
    registry: Registry,
    /// The number of this process, which no other process has.
    instance: u64,
    lifetime: Duration,
}

/// The use of a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// Units that were reserved, to be settled or refunded.
    Reservation,
    /// Units in flight, to be renewed or released.
    Slot,
}

/// The text that a client sends back later, and the seconds for which it is valid.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Token {
    Receipt { receipt: String, expires_in: f64 },
    Slot { slot: String, expires_in: f64 },
}

/// The parts of a receipt, as its text has them. The names are short, because clients send them.
#[derive(Serialize, Deserialize)]
struct Content {
    #[serde(rename = "k")]
    kind: Kind,
    /// The number of the receipt, by which its use is recorded.
    #[serde(rename = "n")]
    nonce: String,
    #[serde(rename = "i")]
    instance: u64,
    /// The name of the client that may use it.
    #[serde(rename = "c")]
    client: String,
    /// The store's time of the [charge](Charge), in microseconds.
    #[serde(rename = "t")]
    time_micros: u64,
    /// The time for which the receipt is valid, in microseconds.
    #[serde(rename = "v")]
    validity_micros: u64,
    /// The kind of store that was charged.
    #[serde(rename = "s")]
    source: String,
    #[serde(rename = "l")]
    lines: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(rename = "p")]
    policy: String,
    /// The text of the key, as the client has sent it.
    #[serde(rename = "k")]
    key: String,
    /// The [quota](Quota) that decided the charge. The policy may have another one by now.
    #[serde(rename = "q")]
    quota: String,
    #[serde(rename = "u")]
    units: u64,
    #[serde(rename = "m")]
    mark: [u64; 3],
}

/// A receipt whose signature is right, with the [policies](Policy) and the keys of its lines.
pub(super) struct Opened {
    content: Content,
    source: Source,
    keys: Vec<(Policy, Key)>,
}

impl Receipts {
    /// Creates the receipts of this process. Instances with the same secret accept each other's receipts.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy of uses is not valid.
    pub(super) fn new(
        limiter: Limiter,
        registry: Registry,
        secret: Option<&str>,
        lifetime: Duration,
    ) -> Result<Self, Error> {
        let secret = secret.map_or_else(|| random::bytes::<32>().to_vec(), |it| it.into());
        // HMAC takes keys of each length: a long one is hashed first.
        let mut mac = Hmac::new_from_slice(&secret).expect("a key of any length");
        mac.update(FORMAT);
        let uses = Policy::new(USES, Quota::per_minute(1))?;
        let instance = u64::from_be_bytes(random::bytes());
        Ok(Self { mac, limiter, uses, registry, instance, lifetime })
    }

    /// Returns the text of a receipt, for one client. `text_of` returns the text of the key of a
    /// [charge](Charge). A slot is valid until its first unit expires.
    pub(super) fn issue(
        &self,
        kind: Kind,
        client: &Client,
        receipt: &Receipt,
        text_of: impl Fn(&Charge<'static>) -> String,
    ) -> Token {
        let windows = receipt.lines().iter().map(|line| line.charge.quota().window());
        let validity = match kind {
            Kind::Reservation => self.lifetime,
            Kind::Slot => windows.min().unwrap_or(Duration::from_secs(1)),
        };
        let lines = receipt.lines().iter().map(|line| Line {
            policy: line.charge.policy().name().to_owned(),
            key: text_of(&line.charge),
            quota: line.charge.quota().to_string(),
            units: line.units,
            mark: line.mark.0,
        });
        let content = Content {
            kind,
            nonce: random::token(),
            instance: self.instance,
            client: client.name().to_owned(),
            time_micros: receipt.time.as_micros(),
            validity_micros: u64::try_from(validity.as_micros()).unwrap_or(u64::MAX),
            source: receipt.source.name().to_owned(),
            lines: lines.collect(),
        };
        let content = serde_json::to_vec(&content).unwrap_or_default();
        let mut mac = self.mac.clone();
        mac.update(&content);
        let signature = URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
        let text = format!("{}.{signature}", URL_SAFE_NO_PAD.encode(&content));
        let expires_in = validity.as_secs_f64();
        match kind {
            Kind::Reservation => Token::Receipt { receipt: text, expires_in },
            Kind::Slot => Token::Slot { slot: text, expires_in },
        }
    }

    /// Opens a receipt of this kind.
    ///
    /// # Errors
    ///
    /// Returns the [problem](Problem) of a receipt that is forged, or that belongs to another client or
    /// instance, and of a policy that the client may not use any more.
    pub(super) fn open(&self, client: &Client, kind: Kind, text: &str) -> Result<Opened, Problem> {
        let content = self.verified(text).filter(|content| content.kind == kind);
        let content = content.ok_or_else(forged)?;
        if content.client != client.name() {
            let detail = "Another client has this receipt";
            return Err(Problem::new(StatusCode::FORBIDDEN, "Another client's receipt", detail));
        }
        let source = SOURCES.into_iter().find(|source| source.name() == content.source);
        let is_own = content.instance == self.instance;
        let source = match source.ok_or_else(forged)? {
            source if is_own => source,
            Source::Local | Source::Fallback => {
                let detail = "The units are in the memory of another process. \
                              They come back by themselves";
                return Err(Problem::new(StatusCode::GONE, "Out of reach", detail));
            }
            // The stock of another instance is out of reach. The shared store refunds its units too.
            Source::Leased => Source::Shared,
            other => other,
        };
        let keys = content.lines.iter().map(|line| {
            let (registered, key) =
                policies::find(&self.registry, client, &line.policy, &line.key)?;
            Ok((registered.policy().clone(), key))
        });
        let keys = keys.collect::<Result<_, Problem>>()?;
        Ok(Opened { content, source, keys })
    }

    /// Returns the parts of a receipt that this service has signed. The signature is compared in constant time.
    fn verified(&self, text: &str) -> Option<Content> {
        let (content, signature) = text.split_once('.')?;
        let content = URL_SAFE_NO_PAD.decode(content).ok()?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let mut mac = self.mac.clone();
        mac.update(&content);
        // Nothing is parsed before the signature is right.
        mac.verify_slice(&signature).ok()?;
        serde_json::from_slice(&content).ok()
    }

    /// Records that the receipt is used now, and restores it.
    ///
    /// # Errors
    ///
    /// Returns the [problem](Problem) of a receipt that was used before or has expired, and of a store that
    /// cannot answer.
    pub(super) async fn take(&self, opened: &Opened) -> Result<Receipt, Problem> {
        let receipt = opened.restore().ok_or_else(forged)?;
        let content = &opened.content;
        let validity = Duration::from_micros(content.validity_micros).max(Duration::from_secs(1));
        let charge = self.uses.charge(Key::from(content.nonce.as_str()), 1);
        // No other part decides if the store cannot: it would not know of uses at other instances.
        let quota = Quota::new(1, validity, Algorithm::SlidingLog)?;
        let charge = charge.with_quota(quota).with_on_failure(OnFailure::Deny);
        let decision = self.limiter.check(charge).await?;
        let ends = content.time_micros.saturating_add(content.validity_micros);
        if decision.time() >= Timestamp::from_micros(ends) {
            return Err(expired());
        }
        match decision {
            Decision::Allowed(_) => Ok(receipt),
            Decision::Denied(_) => {
                let detail = "The receipt was used before";
                Err(Problem::new(StatusCode::CONFLICT, "Used before", detail))
            }
        }
    }
}

impl Opened {
    /// Returns the problem of a policy that the receipt does not have.
    pub(super) fn require_policies<'a>(
        &self,
        mut names: impl Iterator<Item = &'a String>,
    ) -> Result<(), Problem> {
        let policies: Vec<_> = self.content.lines.iter().map(|line| &*line.policy).collect();
        let Some(name) = names.find(|name| !policies.contains(&&***name)) else { return Ok(()) };
        let shown: String = name.chars().take(MAX_NAME_CHARS).collect();
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

    fn restore(&self) -> Option<Receipt> {
        let lines = self.content.lines.iter().zip(&self.keys).map(|(line, (policy, key))| {
            let quota: Quota = line.quota.parse().ok()?;
            let charge = policy.charge(*key, line.units);
            Some(ReceiptLine::from_parts(charge, quota, line.units, Mark(line.mark)))
        });
        let lines: Option<Vec<_>> = lines.collect();
        let time = Timestamp::from_micros(self.content.time_micros);
        Some(Receipt::new(time, self.source, lines?))
    }
}

/// Returns the problem of an error after which the receipt is used up.
pub(super) fn used_up(error: Error) -> Problem {
    error.with_effect(Effect::Unknown).into()
}

pub(super) fn expired() -> Problem {
    let detail = "The receipt has expired. Its units come back by themselves";
    Problem::new(StatusCode::GONE, "Expired", detail)
}

fn forged() -> Problem {
    let detail = "This service has not signed the receipt";
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "Not a receipt", detail);
    problem.allowed("a receipt or a slot as this service has answered it")
}

/// Returns some of the lines of a [receipt](Receipt).
pub(super) fn part(receipt: &Receipt, has: impl Fn(&ReceiptLine) -> bool) -> Receipt {
    let lines = receipt.lines().iter().filter(|line| has(line)).map(|line| {
        let quota = *line.charge.quota();
        ReceiptLine::from_parts(line.charge.clone(), quota, line.units, line.mark)
    });
    Receipt::new(receipt.time, receipt.source, lines)
}
