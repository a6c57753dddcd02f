//! The token of a request.

use http::{HeaderMap, header::AUTHORIZATION};

/// Returns the token of the header `Authorization: Bearer ..` (RFC 6750, section 2.1), if the request has
/// exactly one.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_one_bearer_token_is_a_token() {
        let token = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_static(value));
            }
            bearer(&headers).map(<[u8]>::to_vec)
        };
        assert_eq!(token(&["Bearer secret"]).as_deref(), Some(&b"secret"[..]));
        assert_eq!(token(&["bEARER  secret "]).as_deref(), Some(&b"secret"[..]));
        for none in
            [&[][..], &["Bearer "], &["Bearer"], &["Basic secret"], &["Bearer a", "Bearer b"]]
        {
            assert_eq!(token(none), None, "{none:?}");
        }
    }
}
