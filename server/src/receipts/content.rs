//! The parts of a receipt.

use plimsoll::{Key, Mark, Policy, Quota, Receipt, ReceiptLine, Timestamp, store::Source};
use serde::{Deserialize, Serialize};

/// The use of a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Units that were reserved, to be settled or refunded.
    Reservation,
    /// Units in flight, to be renewed or released.
    Slot,
}

/// The parts of a receipt, as the text of a receipt has them. The names are short, because clients send them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Content {
    #[serde(rename = "k")]
    pub(crate) kind: Kind,
    /// The number of the receipt, by which its use is recorded.
    #[serde(rename = "n")]
    pub(super) nonce: [u64; 2],
    /// The instance that made the receipt.
    #[serde(rename = "i")]
    pub(super) instance: u64,
    /// The name of the client that may use it.
    #[serde(rename = "c")]
    pub(super) client: String,
    /// The store's time of the charge, in microseconds.
    #[serde(rename = "t")]
    pub(super) time: u64,
    /// The time for which the receipt is valid, in microseconds.
    #[serde(rename = "v")]
    pub(super) validity: u64,
    /// The kind of store that was charged.
    #[serde(rename = "s")]
    source: String,
    #[serde(rename = "l")]
    pub(crate) lines: Vec<Line>,
}

/// A line of a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(rename = "p")]
    pub(crate) policy: String,
    /// The text of the key, as the client has sent it.
    #[serde(rename = "k")]
    pub(crate) key: String,
    /// The quota that decided the charge. The policy may have another one by now.
    #[serde(rename = "q")]
    quota: String,
    #[serde(rename = "u")]
    units: u64,
    #[serde(rename = "m")]
    mark: [u64; 3],
}

/// The origin of a receipt: the instance and the client, and its number and validity.
pub(crate) struct Issued<'a> {
    pub(crate) kind: Kind,
    pub(crate) client: &'a str,
    pub(super) nonce: [u64; 2],
    pub(super) instance: u64,
    pub(super) validity: u64,
}

/// The sources of receipts.
const SOURCES: [Source; 5] =
    [Source::Local, Source::Fallback, Source::Shared, Source::Leased, Source::Region];

impl Content {
    /// Takes the parts of a receipt. `key_text` returns the text of the key of a line.
    pub(super) fn new(
        issued: &Issued<'_>,
        receipt: &Receipt,
        key_text: impl Fn(&ReceiptLine) -> String,
    ) -> Self {
        let lines = receipt.lines().iter().map(|line| Line {
            policy: line.charge().policy().name().to_owned(),
            key: key_text(line),
            quota: line.charge().quota().to_string(),
            units: line.units(),
            mark: line.mark().parts(),
        });
        Self {
            kind: issued.kind,
            nonce: issued.nonce,
            instance: issued.instance,
            client: issued.client.to_owned(),
            time: receipt.time().as_micros(),
            validity: issued.validity,
            source: receipt.source().name().to_owned(),
            lines: lines.collect(),
        }
    }

    /// Returns the kind of store that was charged, as this instance sees it, or `None` if only another instance
    /// has the units, in its memory.
    pub(super) fn source_at(&self, instance: u64) -> Option<Source> {
        let source = SOURCES.into_iter().find(|source| source.name() == self.source)?;
        match source {
            _ if self.instance == instance => Some(source),
            Source::Local | Source::Fallback => None,
            // The stock of another instance is out of reach. The shared store refunds its units too.
            Source::Leased => Some(Source::Shared),
            other => Some(other),
        }
    }

    /// Restores the receipt, with these policies and keys of its lines.
    pub(crate) fn restore(&self, source: Source, keys: &[(Policy, Key)]) -> Option<Receipt> {
        let lines = self.lines.iter().zip(keys).map(|(line, (policy, key))| {
            let quota: Quota = line.quota.parse().ok()?;
            let charge = policy.charge(*key, line.units);
            Some(ReceiptLine::from_parts(charge, quota, line.units, Mark::new(line.mark)))
        });
        let lines: Option<Vec<_>> = lines.collect();
        Some(Receipt::from_parts(Timestamp::from_micros(self.time), source, lines?))
    }
}
