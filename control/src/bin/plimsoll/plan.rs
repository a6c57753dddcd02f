//! The calculator: what a service asks of its Redis, by the figures of `docs/report.md`.

use std::time::Duration;

use clap::Args;
use plimsoll::{Algorithm, Quota};
use serde_json::{Value, json};

use crate::client::Failure;

/// The measured figures of each algorithm, which `scripts/report` writes: microseconds of processor time
/// of Redis for a call and for each decision in it, bytes of a key, and bytes of each further record.
const FIGURES: &str = include_str!("figures.csv");

/// The most decisions of a call.
const MAX_BATCH: f64 = 64.0;
/// The longest time for which a check waits for a call in flight.
const MAX_WAIT: Duration = Duration::from_millis(5);
/// The charges for which a second call is sent beside one in flight.
const SECOND_CALL: f64 = 24.0;
/// The bytes of a key in a cluster that link it to the others of its slot: two pointers.
const SLOT_BYTES: f64 = 16.0;
/// A key is leased by a process that makes this many checks of it in half a lease.
const LEASED_FROM_CHECKS: f64 = 4.0;

#[derive(Debug, Clone, Args)]
pub(crate) struct PlanArgs {
    /// The quota, as in a configuration file: 100/min, "60000/min sliding-buckets(60) leased(500ms)".
    #[arg(long, default_value = "100/min")]
    quota: Quota,
    /// The keys that are in use within a window: 1e6, 200k.
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    keys: f64,
    /// The checks a second of all instances: 50k.
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    rps: f64,
    /// The instances of the service.
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = number)]
    instances: f64,
    /// The keys that are so busy that their checks are counted by themselves.
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = count, requires = "hot_share")]
    hot_keys: f64,
    /// The part of the checks that is of hot keys: 0.8.
    #[arg(long, value_name = "PART", default_value = "0", value_parser = part, requires = "hot_keys")]
    hot_share: f64,
    /// The time of a call to Redis, from an instance and back.
    #[arg(long, value_name = "TIME", default_value = "500us", value_parser = humantime::parse_duration)]
    round_trip: Duration,
    /// Redis is a cluster: checks share a call only if their keys are in the same slot.
    #[arg(long)]
    cluster: bool,
    /// The speed of a core of Redis beside that of the report.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = number)]
    core_speed: f64,
    /// The part of a core that may be in use.
    #[arg(long, value_name = "PART", default_value = "0.6", value_parser = part_above_0)]
    target: f64,
}

/// The figures of an algorithm.
#[derive(Debug, Clone, Copy)]
struct Costs {
    /// The processor time of a call, and of each decision in it, in microseconds.
    call: f64,
    decision: f64,
    /// The bytes of a key with one record, and of each further record.
    key: f64,
    record: f64,
}

/// The load of Redis.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// True if the instances lease the hot keys.
    is_leased: bool,
    /// The decisions of Redis a second, those of leases among them.
    decisions: f64,
    /// The decisions that share a call, on average.
    batch: f64,
    /// The commands a second, and those of them that renew leases.
    commands: f64,
    lease_commands: f64,
    /// The cores that are busy, of all primaries together: seconds of processor time a second.
    cores: f64,
    /// The primaries that are needed, each of which uses one core up to the target.
    servers: f64,
    /// The records of a key, on average, and the bytes of a key with them.
    records: f64,
    key_bytes: f64,
}

/// Returns the plan as JSON and as text.
pub(crate) fn run(args: &PlanArgs) -> Result<(Value, String), Failure> {
    let name = args.quota.algorithm().name();
    let costs =
        costs(name).ok_or_else(|| Failure::new(&format!("the report has no figures of {name}")))?;
    let plan = plan(args, costs);
    let json = json!({
        "quota": args.quota.to_string(),
        "hot_keys_are_leased": plan.is_leased,
        "redis_decisions_per_second": plan.decisions.round(),
        "decisions_per_command": plan.batch,
        "commands_per_second": plan.commands.round(),
        "commands_of_leases_per_second": plan.lease_commands.round(),
        "busy_cores": plan.cores,
        "primaries": plan.servers,
        "records_of_a_key": plan.records,
        "bytes_of_a_key": plan.key_bytes.round(),
        "memory_bytes": (plan.key_bytes * args.keys).round(),
    });
    Ok((json, text(args, &plan)))
}

fn plan(args: &PlanArgs, costs: Costs) -> Plan {
    let hot = if args.hot_keys > 0.0 { args.rps * args.hot_share } else { 0.0 };
    let lease = args.quota.lease().map(|lease| lease.as_secs_f64());
    let holders = args.hot_keys * args.instances;
    let is_leased =
        lease.is_some_and(|lease| hot > 0.0 && hot / holders * lease / 2.0 >= LEASED_FROM_CHECKS);
    // A stock is renewed about twice in each lease.
    let lease_commands = lease.filter(|_| is_leased).map_or(0.0, |lease| holders * 2.0 / lease);
    let direct = args.rps - if is_leased { hot } else { 0.0 };
    // Checks that arrive during a call share the next one. Of a call in which none arrives, the next
    // check is sent alone.
    let during_a_call = match args.cluster {
        true => 0.0,
        false => direct / args.instances * args.round_trip.min(MAX_WAIT).as_secs_f64(),
    };
    let batch = match during_a_call {
        few if few <= SECOND_CALL => few + (-few).exp(),
        // A second call is in flight, so a call takes the checks of half its time.
        many => (many / 2.0).clamp(SECOND_CALL, MAX_BATCH),
    };
    let commands = direct / batch + lease_commands;
    let decisions = direct + lease_commands;
    let micros = commands * costs.call + decisions * costs.decision;
    let cores = micros / 1e6 / args.core_speed;
    let in_window = args.rps / args.keys * args.quota.window().as_secs_f64();
    let records = match args.quota.algorithm() {
        Algorithm::SlidingLog => in_window.clamp(1.0, args.quota.limit() as f64),
        // Requests of a bucket share its record, and a request that is admitted costs a unit.
        Algorithm::SlidingBuckets(buckets) => {
            in_window.clamp(1.0, (f64::from(buckets) + 1.0).min(args.quota.limit() as f64))
        }
        _ => 1.0,
    };
    Plan {
        is_leased,
        decisions,
        batch,
        commands,
        lease_commands,
        cores,
        servers: (cores / args.target).ceil().max(1.0),
        records,
        key_bytes: costs.key
            + if args.cluster { SLOT_BYTES } else { 0.0 }
            + costs.record * (records - 1.0),
    }
}

fn text(args: &PlanArgs, plan: &Plan) -> String {
    let memory = plan.key_bytes * args.keys / 1e6;
    let leases = match (args.quota.lease(), plan.is_leased) {
        (None, _) => "the quota has no lease".to_owned(),
        (_, true) => format!("{:.0} of them renew leases", plan.lease_commands),
        (_, false) => "no key is busy enough to be leased".to_owned(),
    };
    let lines = [
        format!("commands    {:>12.0} a second; {leases}", plan.commands),
        format!("a command   {:>12.1} decisions", plan.batch),
        format!("processor   {:>12.2} cores of Redis", plan.cores),
        format!(
            "primaries   {:>12.0} with a core in use to {:.0}%",
            plan.servers,
            100.0 * args.target
        ),
        format!("a key       {:>12.0} bytes, with {:.0} records", plan.key_bytes, plan.records),
        format!("memory      {memory:>12.0} MB in all primaries together"),
    ];
    lines.join("\n")
}

fn costs(name: &str) -> Option<Costs> {
    let row = FIGURES.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(','))?;
    let mut numbers = row.split(',').map(|it| it.parse().ok());
    let mut next = || numbers.next().flatten();
    Some(Costs { call: next()?, decision: next()?, key: next()?, record: next()? })
}

/// Parses a number above 0, perhaps with a suffix.
fn number(text: &str) -> Result<f64, String> {
    scaled(text).filter(|it| *it > 0.0).ok_or_else(|| wrong(text, "above 0"))
}

/// Parses a number of at least 0.
fn count(text: &str) -> Result<f64, String> {
    scaled(text).filter(|it| *it >= 0.0).ok_or_else(|| wrong(text, "of at least 0"))
}

/// Parses a finite number, perhaps with a suffix.
fn scaled(text: &str) -> Option<f64> {
    let (digits, factor) = match text.chars().last() {
        Some('k') => (&text[..text.len() - 1], 1e3),
        Some('M') => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    digits.parse::<f64>().ok().map(|number| number * factor).filter(|it| it.is_finite())
}

/// Parses a part of a whole.
fn part(text: &str) -> Result<f64, String> {
    let part = text.parse::<f64>().ok().filter(|it| (0.0..=1.0).contains(it));
    part.ok_or_else(|| format!("{text:?} is no part: allowed is a number from 0 to 1, such as 0.8"))
}

/// Parses a part of a whole that is not 0.
fn part_above_0(text: &str) -> Result<f64, String> {
    let allowed = || format!("{text:?}: allowed is a number above 0 and up to 1, such as 0.6");
    part(text).ok().filter(|it| *it > 0.0).ok_or_else(allowed)
}

fn wrong(text: &str, range: &str) -> String {
    format!("{text:?}: allowed is a number {range}, such as 500, 1e6, 50k or 2M")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: PlanArgs,
    }

    const COSTS: Costs = Costs { call: 6.0, decision: 2.0, key: 200.0, record: 10.0 };

    fn plan_of(line: &str) -> Plan {
        let words = ["plan"].into_iter().chain(line.split(' '));
        plan(&Line::parse_from(words).args, COSTS)
    }

    #[test]
    fn the_report_has_figures_of_each_algorithm() {
        for algorithm in Algorithm::EACH {
            let costs = costs(algorithm.name()).unwrap_or_else(|| panic!("{algorithm}"));
            assert!(costs.call > 0.0 && costs.decision > 0.0 && costs.key > 0.0, "{costs:?}");
        }
    }

    #[test]
    fn a_call_per_check_costs_a_call_and_a_decision() {
        let plan = plan_of("--keys 1e6 --rps 50k --instances 10 --round-trip 1us");
        assert!((plan.cores - 0.4).abs() < 0.001, "{plan:?}");
        // A check shares a call now and then, also at this round trip.
        assert!((49_990.0..=50_000.0).contains(&plan.commands), "{plan:?}");
        assert_eq!(plan.servers, 1.0);
        assert_eq!((plan.records, plan.key_bytes), (3.0, 220.0));
    }

    #[test]
    fn checks_share_calls_if_they_come_faster_than_the_calls() {
        for (round_trip, batch) in [("400us", 20.0), ("700us", 24.0), ("1ms", 25.0), ("9ms", 64.0)]
        {
            let line = format!("--keys 1e6 --rps 50k --instances 1 --round-trip {round_trip}");
            let plan = plan_of(&line);
            assert!((plan.batch - batch).abs() < 0.001, "{plan:?}");
        }
        let in_cluster = plan_of("--keys 1e6 --rps 50k --round-trip 1ms --cluster");
        assert_eq!((in_cluster.batch, in_cluster.commands), (1.0, 50_000.0));
    }

    #[test]
    fn a_hot_key_costs_two_commands_a_lease_and_instance() {
        let line =
            "--keys 1e6 --rps 50k --instances 10 --hot-keys 5 --hot-share 1 --round-trip 1us";
        let direct = plan_of(line);
        assert!(!direct.is_leased && direct.commands > 49_990.0, "{direct:?}");
        let args = ["plan", "--quota", "1000000/min sliding-buckets(60) leased(500ms)"];
        let words = args.into_iter().chain(line.split(' '));
        let leased = plan(&Line::parse_from(words).args, COSTS);
        assert!(leased.is_leased && leased.commands.round() == 200.0, "{leased:?}");
    }

    #[test]
    fn a_log_has_at_most_as_many_records_as_its_limit() {
        assert_eq!(plan_of("--keys 10 --rps 50k").records, 100.0);
        assert_eq!(plan_of("--keys 1e9 --rps 1").records, 1.0);
    }

    #[test]
    fn buckets_have_at_most_one_more_record_than_their_number_and_as_many_as_the_limit() {
        for (quota, records) in [("100/min", 61.0), ("5/min", 5.0)] {
            let quota = format!("{quota} sliding-buckets(60)");
            let words = ["plan", "--quota", &quota, "--keys", "10", "--rps", "50k"];
            assert_eq!(plan(&Line::parse_from(words).args, COSTS).records, records, "{quota}");
        }
    }

    #[test]
    fn a_key_of_a_cluster_has_the_links_of_its_slot() {
        let line = "--keys 1e6 --rps 50k";
        let more = plan_of(&format!("{line} --cluster")).key_bytes - plan_of(line).key_bytes;
        assert_eq!(more, SLOT_BYTES);
    }

    #[test]
    fn hot_keys_need_their_share_and_the_share_its_keys() {
        for (given, missing) in [("--hot-keys 5", "--hot-share"), ("--hot-share 1", "--hot-keys")] {
            let words = format!("plan --keys 1 --rps 1 {given}");
            let error = Line::try_parse_from(words.split(' ')).expect_err(given).to_string();
            assert!(error.contains(missing), "{given}: {error}");
        }
    }

    #[test]
    fn wrong_numbers_name_what_is_allowed() {
        assert_eq!(count("2M").unwrap(), 2e6);
        for (wrong, allowed) in [("-1", "above 0"), ("0", "above 0"), ("1x", "above 0")] {
            assert!(number(wrong).unwrap_err().contains(allowed), "{wrong}");
        }
        assert!(count("-1").unwrap_err().contains("at least 0"));
        assert!(part("1.5").unwrap_err().contains("from 0 to 1"));
        for wrong in ["0", "1.5", "x"] {
            assert!(part_above_0(wrong).unwrap_err().contains("above 0 and up to 1"), "{wrong}");
        }
    }
}
