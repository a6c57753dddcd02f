//! Receipts and slots as texts for clients.

use std::time::Duration;

use plimsoll::{Charge, Receipt};

use super::Api;
use crate::{access::Client, receipts::Kind};

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
