//! The access logs of AWS application load balancers.

use std::sync::Arc;

use super::super::{Entry, columns::Columns, roles::Roles, words::Words};

const NAMES: &[&str] = &[
    "type",
    "time",
    "elb",
    "client",
    "target",
    "request_processing_time",
    "target_processing_time",
    "response_processing_time",
    "elb_status_code",
    "target_status_code",
    "received_bytes",
    "sent_bytes",
    "request",
    "user_agent",
    "ssl_cipher",
    "ssl_protocol",
    "target_group_arn",
    "trace_id",
    "domain_name",
    "chosen_cert_arn",
    "matched_rule_priority",
    "request_creation_time",
    "actions_executed",
    "redirect_url",
    "error_reason",
    "target_port_list",
    "target_status_code_list",
    "classification",
    "classification_reason",
    "conn_trace_id",
];

/// The place of the request, which all lines have.
const REQUEST: usize = 12;

/// The first words of lines.
const TYPES: &[&str] = &["http", "https", "h2", "grpcs", "ws", "wss"];

/// The parser of the logs of application load balancers.
#[derive(Debug)]
pub(super) struct Alb {
    columns: Arc<Columns>,
}

impl Alb {
    pub(super) fn new(roles: &Roles) -> Self {
        Self { columns: Arc::new(Columns::new(NAMES.iter().copied(), roles)) }
    }

    pub(super) fn parse(&self, line: &str, entry: &mut Entry) -> Result<(), &'static str> {
        entry.set_columns(&self.columns);
        let mut words = Words::new(line, 0);
        for column in 0..self.columns.len() {
            let Some(word) = words.next()? else {
                return if column > REQUEST { Ok(()) } else { Err("the line ends too early") };
            };
            match column {
                0 if !TYPES.contains(&word.text(line)) => return Err("the type is none of ALB"),
                REQUEST if !word.is_quoted() => return Err("the request is not in quotes"),
                _ => word.push(line, entry, &self.columns, column),
            }
        }
        Ok(())
    }
}
