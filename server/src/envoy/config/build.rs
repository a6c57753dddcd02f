//! The limits of files.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt::Write,
    sync::Arc,
};

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::RateLimit;
use plimsoll::{Policy, Quota};
use plimsoll_control::{
    ConfigError, Format,
    document::{self, At, Mistake},
};
use sha2::{Digest, Sha256};

use super::{
    pattern::Pattern,
    rule::{Counted, DeniedHits, Limit, Rule, RulePlace},
    spec::{DescriptorSpec, FileSpec, LimitSpec, ONE_LIMIT, Scalar, misplaced},
    tree::{Domain, Node},
};
use crate::envoy::{
    metric_key::MetricKey,
    options::EnvoyOptions,
    unit::{Unit, quota_of},
};

/// The path of the limits that requests bring along. No path of a file has an empty name.
const OVERRIDE_ID: &str = "\0\0override";

/// The most mistakes of a file that are reported at once.
const MAX_MISTAKES: usize = 20;

/// Collects the limits of files by domain.
pub(super) struct Builder<'o> {
    pub(super) options: &'o EnvoyOptions,
    pub(super) domains: HashMap<Box<str>, Domain>,
    pub(super) errors: Vec<ConfigError>,
}

/// A file that is being read.
struct File<'f> {
    options: &'f EnvoyOptions,
    name: Arc<str>,
    text: &'f str,
    /// The place of the first byte of each line.
    lines: Vec<usize>,
    mistakes: Vec<Mistake>,
}

/// The path to a level of descriptors.
#[derive(Clone, Copy)]
struct Path<'p> {
    domain: &'p str,
    metric_key: &'p MetricKey,
    /// The names of the levels, each behind a zero byte, which YAML cannot contain.
    id: &'p str,
}

impl Builder<'_> {
    /// Adds the limits of a file, or its mistakes.
    pub(super) fn add(&mut self, name: &str, format: Format, text: &str) {
        match document::read::<Option<FileSpec>>(text, format) {
            Err(mistake) => {
                self.errors.push(ConfigError::new(misplaced(mistake, text), name, text));
            }
            Ok(spec) => {
                // A file of comments has no value.
                let spec = spec.unwrap_or_default();
                let lines = text.match_indices('\n').map(|(at, _)| at + 1);
                let file = File {
                    options: self.options,
                    name: name.into(),
                    text,
                    lines: [0].into_iter().chain(lines).collect(),
                    mistakes: Vec::new(),
                };
                let mistakes = self.add_domain(file, &spec);
                let errors = mistakes.into_iter().take(MAX_MISTAKES);
                self.errors.extend(errors.map(|mistake| ConfigError::new(mistake, name, text)));
            }
        }
    }

    fn add_domain(&mut self, mut file: File<'_>, spec: &FileSpec) -> Vec<Mistake> {
        let domain = spec.domain.as_ref().map_or("", |domain| Scalar::text(domain, file.text));
        let place = spec.domain.as_ref().map_or(0..0, |domain| domain.span.clone());
        let merges = self.options.merge_domains;
        if domain.is_empty() {
            file.mistakes.push(Mistake::new("the field `domain` is missing or empty").at(place));
            return file.mistakes;
        }
        if self.domains.contains_key(domain) && !merges {
            let found = format!("the domain `{domain}` is there twice");
            let allowed = "one file for each domain, unless domains are merged";
            file.mistakes.push(Mistake::new(found).allowed(allowed).at(place));
            return file.mistakes;
        }
        let level = self.domains.entry(domain.into());
        let level = match level {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                // The quota is that of each request.
                match Policy::new(&policy_name(domain, "override", OVERRIDE_ID), "1/s") {
                    Ok(overrides) => new.insert(Domain::new(overrides)),
                    Err(error) => {
                        file.mistakes.push(Mistake::new(error).at(place));
                        return file.mistakes;
                    }
                }
            }
        };
        let metric_key = MetricKey::new(domain);
        let path = Path { domain, metric_key: &metric_key, id: "" };
        level.has_list |= spec.descriptors.is_some();
        file.add_level(&mut level.root, path, spec.descriptors.as_deref().unwrap_or_default());
        file.mistakes
    }
}

impl File<'_> {
    fn add_level(&mut self, node: &mut Node, path: Path<'_>, descriptors: &[At<DescriptorSpec>]) {
        for descriptor in descriptors {
            if let Err(mistake) = self.add_descriptor(node, path, descriptor) {
                self.mistakes.push(mistake);
            }
        }
    }

    fn add_descriptor(
        &mut self,
        parent: &mut Node,
        path: Path<'_>,
        descriptor: &At<DescriptorSpec>,
    ) -> Result<(), Mistake> {
        let spec = &descriptor.value;
        let text = |at: &Option<At<Scalar>>| {
            at.as_ref().map(|at| Scalar::text(at, self.text).to_owned()).unwrap_or_default()
        };
        let (key, value) = (text(&spec.key), text(&spec.value));
        if key.is_empty() {
            return Err(descriptor.mistake("the field `key` of the descriptor is missing or empty"));
        }
        let name = if value.is_empty() { key } else { format!("{key}_{value}") };
        let place = spec.key.as_ref().map_or(descriptor.span.clone(), |key| key.span.clone());
        if parent.children.contains_key(&*name) {
            let found = format!("the descriptor `{name}` is there twice at this level");
            return Err(Mistake::new(found).allowed(ONE_LIMIT).at(place));
        }
        let mut metric_key = path.metric_key.clone();
        metric_key.push(&*name);
        let id = format!("{}\0{name}", path.id);
        let path = Path { metric_key: &metric_key, id: &id, ..path };
        let mut node = Node {
            shares_threshold: spec.share_threshold.as_ref().is_some_and(|shares| shares.value),
            // The name of an exact value has the value already.
            value_to_metric: spec.value_to_metric == Some(true)
                && (value.is_empty() || value.contains('*')),
            ..Node::default()
        };
        match (&spec.share_threshold, Pattern::of(&name)) {
            (Some(shares), None) if shares.value => {
                let mistake = shares.mistake("`share_threshold` needs a pattern");
                return Err(mistake.allowed("it beside a value with `*`"));
            }
            (_, Some(pattern)) => parent.patterns.push((pattern, name.as_str().into())),
            _ => {}
        }
        if let Some(limit) = &spec.rate_limit {
            node.rule = Some(self.rule(limit, spec, path, place.start)?);
        }
        self.add_level(&mut node, path, spec.descriptors.as_deref().unwrap_or_default());
        parent.children.insert(name.into(), node);
        Ok(())
    }

    fn rule(
        &self,
        limit: &At<LimitSpec>,
        descriptor: &DescriptorSpec,
        path: Path<'_>,
        at: usize,
    ) -> Result<Rule, Mistake> {
        let name = limit.value.name.as_ref().map_or("", |name| Scalar::text(name, self.text));
        let mut replaces = Vec::new();
        for replaced in limit.value.replaces.iter().flatten() {
            let place = replaced.name.as_ref().map_or(limit.span.clone(), |it| it.span.clone());
            let other = replaced.name.as_ref().map_or("", |name| Scalar::text(name, self.text));
            if other.is_empty() {
                let mistake = Mistake::new("the name of the limit to replace is empty");
                return Err(mistake.at(place));
            }
            if other == name {
                return Err(Mistake::new("a limit cannot replace itself").at(place));
            }
            replaces.push(other.into());
        }
        let (kind, unit, requests) = self.limit(limit, path)?;
        Ok(Rule {
            limit: kind,
            shown: RateLimit {
                name: name.to_owned(),
                requests_per_unit: requests,
                unit: unit.map_or(0, |unit| unit.shown() as i32),
            },
            replaces: replaces.into(),
            is_shadow: descriptor.shadow_mode.unwrap_or_default(),
            is_quota: descriptor.quota_mode.unwrap_or_default(),
            has_detailed_metric: descriptor.detailed_metric.unwrap_or_default(),
            metadata: descriptor.metadata.clone().unwrap_or_default(),
            header_name: path.metric_key.header_name(name).into(),
            metric_key: path.metric_key.clone(),
            stats: Default::default(),
            denied_hits: DeniedHits::new(descriptor.count_denied),
            place: RulePlace {
                file: Arc::clone(&self.name),
                line: self.lines.partition_point(|start| *start <= at),
            },
        })
    }

    /// Returns the kind of a limit, and its unit and requests per unit as responses show them.
    fn limit(
        &self,
        at: &At<LimitSpec>,
        path: Path<'_>,
    ) -> Result<(Limit, Option<Unit>, u32), Mistake> {
        let LimitSpec { unit, requests_per_unit, quota, .. } = &at.value;
        let is_unlimited = at.value.unlimited.unwrap_or_default();
        let named = unit.as_ref().map(|unit| Scalar::text(unit, self.text));
        let named = named.filter(|name| !name.is_empty());
        let kinds = [named.is_some(), quota.is_some(), is_unlimited];
        if kinds.into_iter().filter(|is_there| *is_there).count() != 1
            || (quota.is_some() && requests_per_unit.is_some())
        {
            let mistake = Mistake::new("a limit has no kind, or several").at(at.span.clone());
            let allowed = "`unit` and `requests_per_unit`, or `quota`, or `unlimited: true`";
            return Err(mistake.allowed(allowed));
        }
        if is_unlimited {
            let shown = requests_per_unit.as_ref().map_or(0, |it| it.value);
            return Ok((Limit::Unlimited, None, shown));
        }
        if let Some(text) = quota {
            let quota: Quota =
                text.value.parse().map_err(|error| text.mistake(format_args!("{error}")))?;
            if quota.is_concurrent() {
                return Err(text.mistake(
                    "Envoy does not say which request has ended, so no slot of a concurrency limit is released",
                ));
            }
            let unit = Unit::of_window(quota.window());
            let shown = u32::try_from(quota.limit()).unwrap_or(u32::MAX);
            return Ok((self.counted(quota, path, at)?, unit, shown));
        }
        let named = named.unwrap_or_default();
        let Some(found) = Unit::named(named) else {
            let place = unit.as_ref().map_or(at.span.clone(), |unit| unit.span.clone());
            let named = named.to_lowercase();
            return Err(Mistake::unknown("unit", &named, Unit::names()).at(place));
        };
        let requests = requests_per_unit.as_ref().map_or(0, |requests| requests.value);
        if requests == 0 {
            return Ok((Limit::Never, Some(found), 0));
        }
        let quota = quota_of(requests, found, self.options.algorithm)
            .map_err(|error| at.mistake(format_args!("{error}")))?;
        Ok((self.counted(quota, path, at)?, Some(found), requests))
    }

    fn counted(&self, quota: Quota, path: Path<'_>, at: &At<LimitSpec>) -> Result<Limit, Mistake> {
        let shown = path.metric_key.to_string();
        let shown = shown.get(path.domain.len() + 1..).unwrap_or_default();
        let name = policy_name(path.domain, shown, path.id);
        let policy = Policy::new(&name, quota).map_err(|error| at.mistake(error))?;
        Ok(Limit::Counted(Counted::new(policy)))
    }
}

/// Returns the name of the policy of a limit: a readable part, and a digest by which limits of different
/// paths have different names. It is the same in every process, and after every reload.
fn policy_name(domain: &str, shown: &str, id: &str) -> String {
    const DIGEST_BYTES: usize = 6;
    let mut digest = String::new();
    for byte in &Sha256::digest(format!("{domain}\0{id}"))[..DIGEST_BYTES] {
        // Writing to a string cannot fail.
        let _ = write!(digest, "{byte:02x}");
    }
    let readable = |it: char| match it.to_ascii_lowercase() {
        it @ ('a'..='z' | '0'..='9' | '-' | '.') => it,
        _ => '_',
    };
    let room = Policy::MAX_NAME_CHARS - 2 * DIGEST_BYTES - 1;
    let name: String = format!("envoy.{domain}.{shown}").chars().map(readable).take(room).collect();
    format!("{name}-{digest}")
}
