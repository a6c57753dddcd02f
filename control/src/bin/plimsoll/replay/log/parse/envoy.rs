//! The default text format of Envoy, and of Istio, which has more columns in the middle.

use std::sync::Arc;

use super::super::{Entry, columns::Columns, roles::Roles, words::Words};

/// The columns of Envoy.
const ENVOY: &[&str] = &[
    "start_time",
    "request",
    "response_code",
    "response_flags",
    "bytes_received",
    "bytes_sent",
    "duration",
    "upstream_service_time",
    "x_forwarded_for",
    "user_agent",
    "request_id",
    "authority",
    "upstream_host",
];

/// The columns of Istio behind `response_flags`.
const ISTIO: &[&str] = &[
    "response_code_details",
    "connection_termination_details",
    "upstream_transport_failure_reason",
    "bytes_received",
    "bytes_sent",
    "duration",
    "upstream_service_time",
    "x_forwarded_for",
    "user_agent",
    "request_id",
    "authority",
    "upstream_host",
    "upstream_cluster",
    "upstream_local_address",
    "downstream_local_address",
    "downstream_remote_address",
    "requested_server_name",
    "route_name",
];

/// The number of columns that both begin with.
const SHARED: usize = 4;

/// The parser of the default format of Envoy.
#[derive(Debug)]
pub(super) struct Envoy {
    /// The columns of Envoy, and behind them the columns of Istio.
    columns: Arc<Columns>,
}

impl Envoy {
    pub(super) fn new(roles: &Roles) -> Self {
        Self { columns: Arc::new(Columns::new(ENVOY.iter().chain(ISTIO).copied(), roles)) }
    }

    pub(super) fn parse(&self, line: &str, entry: &mut Entry) -> Result<(), &'static str> {
        entry.set_columns(&self.columns);
        let mut words = Words::new(line, 0);
        let time = words.bracketed().ok_or("the line begins with no time in brackets")?;
        time.push(line, entry, &self.columns, 0);
        for column in 1..SHARED {
            let word = words.next()?.ok_or("the line ends too early")?;
            if (column == 1) != word.is_quoted() {
                return Err("the request is not where Envoy writes it");
            }
            if column == 2 && !is_number(word.text(line)) {
                return Err("the status is no number");
            }
            word.push(line, entry, &self.columns, column);
        }
        let Some(next) = words.next()? else { return Err("the line ends too early") };
        // Envoy writes bytes here, and Istio a detail, which is no number.
        let mut columns = if is_number(next.text(line)) {
            SHARED..ENVOY.len()
        } else {
            ENVOY.len()..self.columns.len()
        };
        let mut word = Some(next);
        while let (Some(found), Some(column)) = (word, columns.next()) {
            found.push(line, entry, &self.columns, column);
            word = words.next()?;
        }
        Ok(())
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit())
}
