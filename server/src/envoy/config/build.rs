//! The limits of files.

use std::collections::{BTreeSet, HashMap, hash_map::Entry};

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::RateLimit;
use plimsoll::{Policy, Quota};
use plimsoll_control::{
    ConfigError, Format,
    document::{self, At, Mistake},
};
use sha2::{Digest, Sha256};

use super::{
    pattern::Pattern,
    rule::{Counted, DeniedHits, Limit, Rule},
    spec::{DescriptorSpec, FileSpec, LimitSpec, ONE_LIMIT, Scalar, misplaced},
    tree::{Domain, Node},
};
use crate::envoy::{
    options::EnvoyOptions,
    unit::{Unit, quota_of},
};

/// The longest name of a limit in a header, in characters.
const MAX_HEADER_CHARS: usize = 64;

/// The path of the limits that requests bring along. No path of a file has an empty name.
const OVERRIDES: [&str; 2] = ["", "override"];

/// The most [mistakes](Mistake) of a file that are reported at once.
const MAX_MISTAKES: usize = 20;

/// Collects the limits of files by [domain](Domain).
pub(super) struct Builder<'o> {
    options: &'o EnvoyOptions,
    pub(super) domains: HashMap<Box<str>, Domain>,
    pub(super) errors: Vec<ConfigError>,
    /// The fields of files that have no effect here.
    pub(super) ignored: BTreeSet<&'static str>,
}

/// A file that is being read.
struct File<'f> {
    options: &'f EnvoyOptions,
    text: &'f str,
    mistakes: Vec<Mistake>,
    ignored: &'f mut BTreeSet<&'static str>,
}

/// The path to a level of descriptors.
#[derive(Clone, Copy)]
struct Path<'p> {
    domain: &'p str,
    /// The names of the levels: a key, or a key and a value.
    names: &'p [String],
}

impl<'o> Builder<'o> {
    pub(super) fn new(options: &'o EnvoyOptions) -> Self {
        Self { options, domains: HashMap::new(), errors: Vec::new(), ignored: BTreeSet::new() }
    }

    /// Adds the limits of a file, or its [mistakes](Mistake).
    pub(super) fn add(&mut self, name: &str, format: Format, text: &str) {
        let mistakes = match document::read::<Option<FileSpec>>(text, format) {
            Err(mistakes) => mistakes.into_iter().map(|it| misplaced(it, text)).collect(),
            // A file of comments has no value.
            Ok(spec) => self.add_domain(text, &spec.unwrap_or_default()),
        };
        let errors = mistakes.into_iter().take(MAX_MISTAKES);
        self.errors.extend(errors.map(|mistake| ConfigError::new(mistake, name, text)));
    }

    fn add_domain(&mut self, text: &str, spec: &FileSpec) -> Vec<Mistake> {
        let domain = Scalar::optional_text(spec.domain.as_ref(), text);
        if domain.is_empty() {
            let place = spec.domain.as_ref().map_or(0..0, |domain| domain.span.clone());
            return vec![Mistake::new("the field `domain` is missing or empty").at(place)];
        }
        let level = match self.domains.entry(domain.into()) {
            Entry::Occupied(known) => known.into_mut(),
            // Each request brings its own quota.
            Entry::Vacant(new) => {
                match Policy::new(&policy_name(domain, &OVERRIDES.map(str::to_owned)), "1/s") {
                    Ok(overrides) => new.insert(Domain::new(overrides)),
                    Err(error) => return vec![Mistake::new(error)],
                }
            }
        };
        let mut file =
            File { options: self.options, text, mistakes: Vec::new(), ignored: &mut self.ignored };
        level.has_list |= spec.descriptors.is_some();
        let path = Path { domain, names: &[] };
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
        let key = Scalar::optional_text(spec.key.as_ref(), self.text);
        let value = Scalar::optional_text(spec.value.as_ref(), self.text);
        self.ignored.extend(spec.ignored());
        if key.is_empty() {
            return Err(descriptor.mistake("the field `key` of the descriptor is missing or empty"));
        }
        let name = if value.is_empty() { key.to_owned() } else { format!("{key}_{value}") };
        let place = spec.key.as_ref().map_or(descriptor.span.clone(), |key| key.span.clone());
        if parent.children.contains_key(&*name) {
            let found = format!("the descriptor `{name}` is there twice at this level");
            return Err(Mistake::new(found).allowed(ONE_LIMIT).at(place));
        }
        let mut names = path.names.to_vec();
        names.push(name.clone());
        let path = Path { names: &names, ..path };
        let mut node = Node {
            shares_threshold: spec.share_threshold.as_ref().is_some_and(|shares| shares.value),
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
            node.rule = Some(self.rule(limit, spec, path)?);
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
    ) -> Result<Rule, Mistake> {
        let name = Scalar::optional_text(limit.value.name.as_ref(), self.text);
        let mut replaces = Vec::new();
        for replaced in limit.value.replaces.iter().flatten() {
            let place = replaced.name.as_ref().map_or(limit.span.clone(), |it| it.span.clone());
            let other = Scalar::optional_text(replaced.name.as_ref(), self.text);
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
            metadata: descriptor.metadata.clone().unwrap_or_default(),
            domain: path.domain.into(),
            names: path.names.to_vec(),
            header_name: header_name(name, path.names),
            stats: Default::default(),
            denied_hits: DeniedHits::new(descriptor.count_denied),
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
        let named = Scalar::optional_text(unit.as_ref(), self.text);
        let kinds = [!named.is_empty(), quota.is_some(), is_unlimited];
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
        let Some(found) = Unit::named(named) else {
            let place = unit.as_ref().map_or(at.span.clone(), |unit| unit.span.clone());
            return Err(Mistake::unknown("unit", &named.to_lowercase(), Unit::names()).at(place));
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
        let name = policy_name(path.domain, path.names);
        let policy = Policy::new(&name, quota).map_err(|error| at.mistake(error))?;
        Ok(Limit::Counted(Counted::new(policy)))
    }
}

/// Returns the name of a limit in a header: its own, or the path of its descriptors.
fn header_name(own: &str, names: &[String]) -> Box<str> {
    let name = if own.is_empty() { names.join(".") } else { own.to_owned() };
    let name: String = name.chars().take(MAX_HEADER_CHARS).collect();
    // A character that is not allowed in a string of a structured field makes clients drop the whole field.
    name.replace(|it: char| matches!(it, '"' | '\\') || !(' '..='~').contains(&it), "_").into()
}

/// Returns the name of the [policy](Policy) of a limit: a readable part, and a digest by which limits of
/// different paths have different names. It is the same in every process, and after every reload.
fn policy_name(domain: &str, names: &[String]) -> String {
    const MAX_CHARS: usize = 64;
    const DIGEST_BYTES: usize = 6;
    // YAML cannot contain a zero byte.
    let id: String = names.iter().map(|name| format!("\0{name}")).collect();
    let digest = Sha256::digest(format!("{domain}\0{id}"));
    let digest: String = digest[..DIGEST_BYTES].iter().map(|it| format!("{it:02x}")).collect();
    let room = MAX_CHARS - 2 * DIGEST_BYTES - 1;
    let path = names.join(".");
    let name = format!("envoy.{domain}.{}", path.trim_start_matches('.')).to_ascii_lowercase();
    let readable = name.replace(|it: char| !matches!(it, 'a'..='z' | '0'..='9' | '-' | '.'), "_");
    format!("{}-{digest}", readable.chars().take(room).collect::<String>())
}
