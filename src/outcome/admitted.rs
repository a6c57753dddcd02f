//! An admitted request of a layer of another package.

use std::fmt;

use http::Response;
use http_body::Body;

use super::{
    ResponseBody,
    settle::{BodySettlement, Settlement},
};
use crate::{
    decision::{Allowed, Decision},
    error::Error,
    limiter::Limiter,
    rule::RequestCharges,
    telemetry,
};

/// A request that the limiter has admitted, for [layers of your own](crate::rule::Rules).
///
/// While it exists, units in flight of a [concurrency limit](crate::Quota::concurrent) are renewed. If it is
/// dropped, they are released, and the other charges stay as they are.
#[derive(Default)]
#[must_use = "dropping it releases the units in flight"]
pub struct AdmittedRequest {
    settlement: Option<Settlement>,
    /// The guard of the units in flight.
    at_end: Option<Box<BodySettlement>>,
}

impl AdmittedRequest {
    /// Admits a request by the result of the check of its charges.
    ///
    /// # Errors
    ///
    /// Returns the error of the check, unless the request is admitted without a limit: the store could not
    /// answer, and no charge says [`OnFailure::Deny`](crate::OnFailure::Deny), or all charges are
    /// [shadows](crate::Charge::shadow).
    pub fn new(
        limiter: &Limiter,
        request: RequestCharges<'_>,
        checked: Result<Allowed<'_>, Error>,
    ) -> Result<Self, Error> {
        let RequestCharges { charges, hooks, .. } = request;
        let decision = match checked {
            Ok(allowed) => Decision::Allowed(allowed),
            Err(error) => {
                let admitted = charges.failure_policy().admits(&error);
                telemetry::check_failed(&error, admitted);
                return if admitted { Ok(Self::default()) } else { Err(error) };
            }
        };
        let at_end = limiter.held_units(&decision).map(BodySettlement::holding);
        let limiter = limiter.clone();
        let settlement = (!hooks.is_empty()).then(|| Settlement {
            limiter,
            decision: decision.into_owned(),
            hooks,
        });
        Ok(Self { settlement, at_end })
    }

    /// Adjusts the charges by the response, as the [rules](crate::Rule::refund_if) of the request say. The returned
    /// body adjusts the others and releases the units in flight when it has ended.
    pub async fn settle<B: Body>(self, response: Response<B>) -> Response<ResponseBody<B>> {
        let (head, body) = response.into_parts();
        let at_end = match self.settlement {
            Some(settlement) => settlement.at_head(self.at_end, &head, &body.size_hint()).await.1,
            None => self.at_end,
        };
        Response::from_parts(head, ResponseBody::inner(body, at_end))
    }
}

impl fmt::Debug for AdmittedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmittedRequest").finish_non_exhaustive()
    }
}
