//! The command: the passes over the logs, and what is printed.

use std::{fs, process::ExitCode, time::Duration};

use plimsoll::{Error, Quota};
use plimsoll_control::Config;
use serde_json::to_value;

use super::{
    args::ReplayArgs,
    comparison::Comparison,
    input::Input,
    log::LogError,
    peaks::Peaks,
    report::{Candidate, Report, Window},
    requests::{Numbers, Requests},
    rules::Rules,
    search::Search,
    simulation::Simulation,
};
use crate::{client::Failure, output};

/// The exit status after an interrupt, as of a program that SIGINT has ended.
const INTERRUPTED: u8 = 130;

/// Replays logs, and prints the report.
pub(crate) fn run(args: &ReplayArgs, is_json: bool) -> Result<ExitCode, Failure> {
    let input = Input::new(args.logs.clone(), args.reading.options(), args.filter.clone());
    let input = input.map_err(Failure::of)?;
    let mut report = match &args.limits {
        Some(file) => by_rules(args, &input, Config::from_path(file).map_err(Failure::of)?)?,
        None => by_limits(args, &input)?,
    };
    report.logs = input.names();
    report.filter = args.filter.as_ref().map(ToString::to_string);
    report.partial = input.is_interrupted();
    let page = args.html.as_ref().map_or(Ok(()), |file| fs::write(file, report.page()));
    let text = if is_json {
        output::json(&to_value(&report).map_err(Failure::of)?)
    } else {
        report.text()
    };
    output::print(&text).map_err(Failure::of_output)?;
    // The report of a long replay is printed even if the page fails.
    page.map_err(|error| {
        let name = args.html.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
        Failure::new(&format!("{name} cannot be written: {error}"))
    })?;
    Ok(if report.partial { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// Judges by the limits of the arguments, or searches some.
fn by_limits(args: &ReplayArgs, input: &Input) -> Result<Report, Failure> {
    let mut passes = Passes { args, input, numbers: Numbers::default() };
    let mut simulation = Simulation::new();
    let mut peaks: Vec<_> = windows(args).into_iter().map(Peaks::new).collect();
    let mut comparison = Comparison::new(&args.limit)?;
    let is_search = args.limit.is_empty();
    let mut searches = Vec::new();
    if is_search && !input.is_repeatable() {
        searches = peaks.iter().map(|it| Search::once(it.window())).collect::<Result<_, _>>()?;
    }
    let mut report = Report {
        key: Some(args.key.to_string()),
        cost: Some(args.cost.to_string()),
        ..Report::default()
    };
    report.requests = passes.first(&mut report, |request| {
        peaks.iter_mut().for_each(|it| it.record(request));
        searches.iter_mut().try_for_each(|it| it.record(&simulation, request, u64::MAX))?;
        comparison.record(&simulation, request)
    })?;
    report.keys = passes.numbers.len() as u64;
    if report.requests == 0 {
        report.notes.push("no request was judged".into());
        searches.clear();
    }
    if is_search && !searches.is_empty() {
        let note = "the logs can be read only once: the limits 1, 2, 5, 10 and so on were searched, under a sliding \
                    log. --limit compares the algorithms";
        report.notes.push(note.into());
    }
    if is_search && report.requests > 0 && input.is_repeatable() && !input.is_interrupted() {
        // The counts of the first pass are not needed any more.
        simulation = Simulation::new();
        searches = peaks.iter().map(Search::new).collect::<Result<_, _>>()?;
        passes.next("searching", |request| {
            let pairs = peaks.iter().zip(&mut searches);
            pairs.into_iter().try_for_each(|(peaks, search)| {
                search.record(&simulation, request, peaks.of(request.number))
            })
        })?;
        let found: Vec<Quota> =
            searches.iter().filter_map(|search| search.recommended(report.keys)).collect();
        if input.is_interrupted() {
            let searched = searches.iter().map(Search::requests).min().unwrap_or_default();
            let of = report.requests;
            report.notes.push(format!(
                "interrupted: the limits were searched over the first {searched} of {of} requests"
            ));
        } else {
            simulation = Simulation::new();
            comparison = Comparison::new(&found)?;
            passes.next("comparing", |request| comparison.record(&simulation, request))?;
        }
    }
    comparison.end(&simulation)?;
    let windows = peaks.iter().enumerate();
    report.windows = windows
        .map(|(index, peaks)| Window::new(peaks, searches.get(index), report.keys))
        .collect();
    report.recommended = report.windows.first().and_then(|window| window.recommended.clone());
    for limit in &comparison.limits {
        let peaks = peaks.iter().find(|peaks| peaks.window() == limit.quota.window());
        for (index, it) in limit.candidates.iter().enumerate() {
            let quota = it.policy.quota();
            let row = Candidate::new(&quota, &it.tally, peaks, report.keys, args.show_keys);
            report.candidates.push(if index == 0 { row.retried(&limit.retries) } else { row });
        }
    }
    Ok(report)
}

/// Judges by the rules of a configuration file.
fn by_rules(args: &ReplayArgs, input: &Input, config: Config) -> Result<Report, Failure> {
    let mut rules = Rules::new(config)?;
    let pass = input.read("judging", |entry| rules.record(entry))?;
    let mut report = Report { requests: pass.requests, ..Report::default() };
    report.limits = args.limits.as_ref().map(|file| file.display().to_string());
    report.read(&pass);
    report.notes.extend(rules.notes());
    let decided = rules.decided();
    let uncharged = pass.requests - rules.unjudged - decided.charged;
    if uncharged > 0 {
        report.notes.push(format!("{uncharged} requests are exempt, or no rule applies to them"));
    }
    report.keys = decided.numbers.len() as u64;
    report.denied = Some(decided.denied);
    for ((policy, kind), counts) in &decided.policies {
        let keys = counts.peaks.sorted().len() as u64;
        let peaks = Some(&counts.peaks);
        let row = Candidate::new(&counts.quota, &counts.tally, peaks, keys, args.show_keys);
        report.candidates.push(Candidate { policy: Some(policy.clone()), kind: Some(kind), ..row });
    }
    Ok(report)
}

/// The passes over the logs by key and cost.
struct Passes<'p> {
    args: &'p ReplayArgs,
    input: &'p Input,
    numbers: Numbers,
}

impl Passes<'_> {
    /// Reads the logs for the first time, and notes what reading finds. Returns the number of judged requests.
    fn first(
        &mut self,
        report: &mut Report,
        mut judge: impl FnMut(&super::requests::Request) -> Result<(), Error>,
    ) -> Result<u64, Failure> {
        let mut requests = Requests::new(&self.args.key, &self.args.cost, &mut self.numbers);
        let mut judged = 0;
        let pass = self.input.read("reading", |entry| {
            let Some(request) = requests.request(entry) else { return Ok(()) };
            judged += 1;
            judge(&request).map_err(Failure::from)
        })?;
        report.read(&pass);
        for (count, what) in [(requests.without_key, "key"), (requests.without_cost, "cost")] {
            if count > 0 {
                report.notes.push(format!("{count} requests have no {what}: they are not judged"));
            }
        }
        Ok(judged)
    }

    fn next(
        &mut self,
        purpose: &str,
        mut judge: impl FnMut(&super::requests::Request) -> Result<(), Error>,
    ) -> Result<(), Failure> {
        let mut requests = Requests::new(&self.args.key, &self.args.cost, &mut self.numbers);
        self.input.read(purpose, |entry| match requests.request(entry) {
            Some(request) => judge(&request).map_err(Failure::from),
            None => Ok(()),
        })?;
        Ok(())
    }
}

/// Returns the windows of the limits, or those to search.
fn windows(args: &ReplayArgs) -> Vec<Duration> {
    let mut windows: Vec<_> = args.limit.iter().map(Quota::window).collect();
    if windows.is_empty() {
        windows.clone_from(&args.window);
    }
    let mut known = Vec::new();
    windows.retain(|window| {
        let is_new = !known.contains(window);
        known.push(*window);
        is_new
    });
    windows
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        Self::of(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::of(error)
    }
}
