//! The parser of slot ranges and addresses that the nodes of a cluster send.

use redis::{ErrorKind, RedisError, Value, from_redis_value};

/// The number of hash slots of a cluster.
pub(super) const SLOT_COUNT: usize = 16_384;

/// A range of slots, and the address of the primary that has them.
#[derive(Debug, PartialEq)]
pub(super) struct SlotRange {
    pub(super) first: usize,
    /// The last slot of the range, inclusive.
    pub(super) last: usize,
    pub(super) host: String,
    pub(super) port: u16,
}

/// Returns whether a value can be the reply to `CLUSTER SLOTS`.
pub(super) fn is_slots_reply(value: &Value) -> bool {
    let is_list = |value: &Value| matches!(value, Value::Array(_));
    matches!(value, Value::Array(ranges) if ranges.iter().all(is_list))
}

/// Parses the reply of the node at `replying_host` to `CLUSTER SLOTS`. Ranges whose primary has an
/// address that this node does not know are left out.
///
/// # Errors
///
/// Returns an error if the reply is not valid.
pub(super) fn parse(reply: Value, replying_host: &str) -> Result<Vec<SlotRange>, RedisError> {
    let ranges: Vec<Vec<Value>> = from_redis_value(reply)?;
    ranges.into_iter().filter_map(|range| parse_range(range, replying_host).transpose()).collect()
}

fn parse_range(range: Vec<Value>, replying_host: &str) -> Result<Option<SlotRange>, RedisError> {
    let [first, last, primary, ..] = &range[..] else { return Ok(None) };
    let first: usize = from_redis_value(first.clone())?;
    let last: usize = from_redis_value(last.clone())?;
    if first > last || last >= SLOT_COUNT {
        return Err((ErrorKind::Parse, "a range of slots is not valid").into());
    }
    let primary: Vec<Value> = from_redis_value(primary.clone())?;
    let [host, port, ..] = &primary[..] else { return Ok(None) };
    let host: Option<String> = from_redis_value(host.clone())?;
    let port: u16 = from_redis_value(port.clone())?;
    let host = resolve_host(host.as_deref().unwrap_or_default(), replying_host);
    Ok(host.map(|host| SlotRange { first, last, host: host.to_owned(), port }))
}

/// Parses the address in a redirection by the node at `replying_host`, as host and port. Returns
/// `None` if that node does not know the host.
///
/// # Errors
///
/// Returns an error if the port is not a number from 0 to 65535.
pub(super) fn parse_address(
    address: &str,
    replying_host: &str,
) -> Result<Option<(String, u16)>, RedisError> {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let port = port.parse().map_err(|_| {
        RedisError::from((ErrorKind::Parse, "a cluster node's address is not valid"))
    })?;
    Ok(resolve_host(host, replying_host).map(|host| (host.to_owned(), port)))
}

/// Returns the host in a node's reply. An empty host stands for the node itself, and `?` for a host
/// that the node does not know.
fn resolve_host<'a>(host: &'a str, replying_host: &'a str) -> Option<&'a str> {
    match host {
        "?" => None,
        "" => Some(replying_host).filter(|host| !host.is_empty()),
        host => Some(host.trim_matches(['[', ']'])),
    }
}

/// Returns the number of slots in these ranges.
pub(super) fn covered(ranges: &[SlotRange]) -> usize {
    let mut is_covered = vec![false; SLOT_COUNT];
    for range in ranges {
        is_covered[range.first..=range.last].fill(true);
    }
    is_covered.into_iter().filter(|is_covered| *is_covered).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let primary = Value::Array(vec![host, Value::Int(port), text("id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), primary])
    }

    #[test]
    fn an_empty_host_means_the_replying_node() {
        let hosts = [text("10.0.0.1"), text(""), Value::Nil, text("?")];
        let reply = hosts.into_iter().zip(0..).map(|(host, at)| range(at, at, host, 6_379));
        let ranges = parse(Value::Array(reply.collect()), "here").expect("valid");
        let hosts: Vec<_> = ranges.iter().map(|range| &*range.host).collect();
        assert_eq!(hosts, ["10.0.0.1", "here", "here"]);
        assert_eq!(covered(&ranges), 3);

        let address = |address| parse_address(address, "here").expect("valid");
        assert_eq!(address("10.0.0.1:6381"), Some(("10.0.0.1".into(), 6_381)));
        assert_eq!(address(":6381"), Some(("here".into(), 6_381)));
        assert_eq!(address("::1:6381"), Some(("::1".into(), 6_381)));
        assert_eq!(address("?:6381"), None);
        assert!(parse_address("nowhere", "here").is_err());
    }

    #[test]
    fn a_reply_is_a_list_of_lists() {
        let map = vec![range(0, 99, text("a"), 1), range(100, 16_383, text("b"), 1)];
        assert!(is_slots_reply(&Value::Array(map)));
        assert!(is_slots_reply(&Value::Array(Vec::new())));
        for other in [Value::Okay, Value::Nil, text("a"), Value::Array(vec![Value::Int(7)])] {
            assert!(!is_slots_reply(&other), "{other:?}");
        }
    }

    #[test]
    fn a_map_is_complete_if_it_covers_all_slots() {
        let all = parse(
            Value::Array(vec![range(0, 99, text("a"), 1), range(100, 16_383, text("b"), 1)]),
            "here",
        );
        assert_eq!(covered(&all.expect("valid")), SLOT_COUNT);
        let none = parse(Value::Array(Vec::new()), "here").expect("valid");
        assert_eq!(covered(&none), 0);
        assert!(parse(Value::Array(vec![range(0, 16_384, text("a"), 1)]), "here").is_err());
        assert!(parse(Value::Array(vec![range(9, 8, text("a"), 1)]), "here").is_err());
    }
}
