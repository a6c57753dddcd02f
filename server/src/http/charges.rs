//! The [charges](Charge) that a request names: by policy, key and cost.

use plimsoll::{Charge, Key, OnFailure, policy::Charges};
use plimsoll_control::Registered;
use serde::Deserialize;

use super::{Api, policies, problem::Problem};
use crate::access::Client;

/// The body of a request with [charges](Charge).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChargesBody {
    charges: Vec<ChargeBody>,
    /// The decision while the store cannot answer.
    on_failure: Option<OnFailure>,
}

/// A charge in the body of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChargeBody {
    policy: String,
    key: String,
    #[serde(default = "one")]
    cost: u64,
    /// True for a charge that is decided and reported, and denies nothing.
    #[serde(default)]
    shadow: bool,
}

const fn one() -> u64 {
    1
}

/// A charge whose policy is known.
pub(super) struct Line {
    pub(super) registered: Registered,
    pub(super) key: Key,
    /// The text of the key, as the client has sent it.
    pub(super) text: String,
    cost: u64,
    is_shadow: bool,
    on_failure: OnFailure,
}

/// The charges of a request whose policies are known.
pub(super) struct Lines(pub(super) Vec<Line>);

impl ChargesBody {
    /// Finds the policies and the keys.
    ///
    /// # Errors
    ///
    /// Returns the [problem](Problem) of a policy that does not exist or that the client may not use, of a key
    /// in another form, and of too many charges.
    pub(super) fn find(self, api: &Api, client: &Client) -> Result<Lines, Problem> {
        let count = self.charges.len();
        if !(1..=Charges::MAX).contains(&count) {
            let detail = format!("The request has {count} charges");
            return Err(Problem::invalid(detail, format!("1 to {} charges", Charges::MAX)));
        }
        let parts = api.parts();
        let on_failure = on_failure(self.on_failure, parts.on_failure)?;
        let lines = self.charges.into_iter().map(|charge| {
            let (registered, key) =
                policies::find(&parts.registry, client, &charge.policy, &charge.key)?;
            let ChargeBody { key: text, cost, shadow: is_shadow, .. } = charge;
            Ok(Line { registered, key, text, cost, is_shadow, on_failure })
        });
        lines.collect::<Result<_, Problem>>().map(Lines)
    }
}

/// Returns the `on_failure` of the request, or the operator's if it has none. It must be at least as strict as
/// the operator's.
///
/// # Errors
///
/// Returns the [problem](Problem) of a request that asks for more.
fn on_failure(asked: Option<OnFailure>, setting: OnFailure) -> Result<OnFailure, Problem> {
    const BY_STRICTNESS: [(OnFailure, &str); 3] =
        [(OnFailure::Allow, "allow"), (OnFailure::Local, "local"), (OnFailure::Deny, "deny")];
    let Some(asked) = asked else { return Ok(setting) };
    if asked >= setting {
        return Ok(asked);
    }
    let stricter = BY_STRICTNESS.iter().filter(|(it, _)| *it >= setting);
    let names: Vec<_> = stricter.map(|(_, name)| *name).collect();
    let detail = "`on_failure` admits more than the setting of the service";
    Err(Problem::invalid(detail, names.join(", ")))
}

impl Lines {
    /// Returns the charges under policies that are not switched off.
    pub(super) fn charges(&self) -> Charges<'_> {
        self.0.iter().filter(|line| line.registered.is_enabled()).map(Line::charge).collect()
    }

    /// Returns the text of the key of a charge.
    pub(super) fn text_of(&self, charge: &Charge<'_>) -> String {
        let found = self.0.iter().find(|line| line.is_of(charge));
        found.map(|line| line.text.clone()).unwrap_or_default()
    }

    /// Returns the charges under concurrency limits.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = &Line> {
        self.0.iter().filter(|line| line.registered.policy().quota().is_concurrent())
    }
}

impl Line {
    fn charge(&self) -> Charge<'_> {
        let charge = self.registered.policy().charge(self.key, self.cost);
        let charge = charge.with_on_failure(self.on_failure);
        if self.is_shadow { charge.shadow() } else { charge }
    }

    /// Returns whether a charge is this one, or has this one in its sum.
    pub(super) fn is_of(&self, charge: &Charge<'_>) -> bool {
        charge.key() == &self.key
            && charge.is_live() != self.is_shadow
            && charge.policy().is_clone_of(self.registered.policy())
    }
}
