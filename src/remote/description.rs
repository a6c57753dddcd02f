//! The stages of a [`Resilience`] as text.

use super::Resilience;
use crate::memory::size;

impl Resilience {
    /// Returns the stages as text, for the event that a layer emits when it is first used.
    pub(crate) fn description(&self) -> String {
        let deadline = self.deadline.map(|deadline| format!("deadline {deadline:?}"));
        let breaker = self.breaker.is_some().then(|| "breaker".to_owned());
        let deny_cache = self.deny_cache.then(|| "deny cache".to_owned());
        let fallback = self.fallback.as_ref().map(|memory| {
            let share = match self.instances {
                1 => "the whole of each limit".to_owned(),
                instances => format!("1/{instances} of each limit"),
            };
            format!(
                "fallback {share} in memory ({})",
                size::text(memory.max_keys, memory.max_bytes)
            )
        });
        let stages = [deadline, breaker, deny_cache, fallback];
        let stages: Vec<_> = stages.into_iter().flatten().collect();
        if stages.is_empty() { "no resilience".to_owned() } else { stages.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_stages_are_named() {
        assert_eq!(
            Resilience::default().description(),
            "deadline 50ms, breaker, deny cache, fallback the whole of each limit in memory \
             (100,000 keys, 64 MiB)"
        );
        let five = Resilience::default().instances(5).deadline(Duration::from_millis(20));
        assert!(
            five.without_breaker()
                .description()
                .starts_with("deadline 20ms, deny cache, fallback 1/5 of each limit in memory")
        );
        assert_eq!(Resilience::none().description(), "no resilience");
    }
}
