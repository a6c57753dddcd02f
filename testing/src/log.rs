//! A subscriber that keeps the events of the crate as text.

use std::{
    fmt::{Debug, Write},
    sync::{Arc, Mutex},
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// Keeps the text of every event of the targets that it records.
#[derive(Clone)]
pub struct Log {
    events: Arc<Mutex<Vec<String>>>,
    records: fn(&str) -> bool,
}

impl Default for Log {
    fn default() -> Self {
        Self { events: Arc::default(), records: |target| target.starts_with("plimsoll") }
    }
}

struct Fields<'l>(&'l mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Log {
    /// Records the targets for which `records` returns true.
    pub fn of(records: fn(&str) -> bool) -> Self {
        Self { records, ..Self::default() }
    }

    /// Takes the events so far.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.events.lock().unwrap())
    }

    /// Takes the events so far, and returns those that do not say what a layer limits.
    pub fn take_of_requests(&self) -> Vec<String> {
        self.take().into_iter().filter(|event| !event.contains("; store ")).collect()
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        (self.records)(metadata.target())
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = event.metadata().level().to_string();
        event.record(&mut Fields(&mut text));
        self.events.lock().unwrap().push(text);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
