//! Files of envoyproxy/ratelimit: a tree of descriptors per domain.
//!
//! A request descends the tree, one entry for each level: at each it takes the node with its key
//! and value, else the first whose value has a `*` and matches, else the one with the key alone,
//! and it never backtracks. Here every node with a limit is a rule that finds entries by their
//! positions, and all rules of the domain are one group, in the order in which a request would find
//! them. A node from which a request must not fall through to a later one gets a rule that limits
//! nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use tidegate_core::Window;

use super::ImportedRule;
use super::fields::fields;
use super::metadata;
use super::names::UniqueNames;
use super::node::{Node, NodeValue};
use super::number;
use crate::attributes::MOST_COUNTED;
use crate::policy::descriptors::rule_names::{self, condition};
use crate::policy::diagnostic::{RawDiagnostic, RelatedSpan, Severity};
use crate::policy::key::{Key, KeyPart, attribute_name};
use crate::policy::load::{YamlOptions, domain_twice};
use crate::policy::parse::diagnostic_sink::DiagnosticSink;
use crate::policy::{
    Charging, Condition, CostTable, Grant, Limit, Metadata, Missing, Mode, Override, Pattern, Rule,
};
use crate::window_unit::WindowUnit;

/// The trees of all domains.
pub(super) struct DomainTrees {
    options: YamlOptions,
    trees: Vec<DomainTree>,
    by_name: HashMap<String, usize>,
}

/// The descriptors of a domain, of one document or of several that are merged.
struct DomainTree {
    domain: String,
    /// Where it is first named.
    span: Range<usize>,
    nodes: Vec<DescriptorNode>,
    known: KnownNodes,
}

/// Where each key and value of a level is.
type KnownNodes = HashMap<(String, Option<String>), Range<usize>>;

impl DomainTrees {
    pub(super) fn new(options: YamlOptions) -> Self {
        Self { options, trees: Vec::new(), by_name: HashMap::new() }
    }

    /// Parses a document: one domain.
    pub(super) fn read(&mut self, document: &Node, report: &mut DiagnosticSink) {
        let Some(fields) = fields(document, "the file", &["domain", "descriptors"], report) else {
            return;
        };
        let Some(domain) = fields.text("domain", report).filter(|domain| !domain.is_empty()) else {
            let problem = report.error(document.span.clone(), "the file has no `domain`");
            problem.hint = Some("begin it with `domain: name`".into());
            return;
        };
        let span = fields.get("domain").unwrap_or(document).span.clone();
        let index = match self.by_name.get(&domain) {
            Some(index) if self.options.merges_domains() => *index,
            Some(index) => {
                let first = self.trees[*index].span.clone();
                report.push(domain_twice(&domain, span)).note = Some(at_first(first));
                return;
            }
            None => {
                let (nodes, known) = (Vec::new(), KnownNodes::new());
                self.by_name.insert(domain.clone(), self.trees.len());
                self.trees.push(DomainTree { domain, span, nodes, known });
                self.trees.len() - 1
            }
        };
        if let Some(list) = fields.get("descriptors") {
            let tree = &mut self.trees[index];
            let mut level = Level { depth: 1, options: self.options, known: &mut tree.known };
            tree.nodes.extend(level.nodes(list, report));
        }
    }

    /// Adds the rules of all domains; returns where each is first named.
    pub(super) fn build(
        self,
        names: &mut UniqueNames,
        report: &mut DiagnosticSink,
        found: &mut Vec<ImportedRule>,
    ) -> Vec<(String, Range<usize>)> {
        let mut domains = Vec::with_capacity(self.trees.len());
        for DomainTree { domain, span, nodes, .. } in self.trees {
            let before = found.len();
            let named = NamedLimits::default();
            let of_rules = domain.clone();
            let mut rules = RuleBuilder { domain: of_rules, report, found, names, named, bytes: 0 };
            rules.add(&nodes, &mut Vec::new());
            rules.resolve_replaced();
            if rules.found.len() == before && !rules.report.has_errors() {
                rules.add_nothing(&span);
            }
            domains.push((domain, span));
        }
        domains
    }
}

/// Where something was, of which there is a second.
const fn at_first(span: Range<usize>) -> RelatedSpan {
    RelatedSpan { span, text: "the first is" }
}

/// A descriptor of the tree.
struct DescriptorNode {
    key: String,
    value: Option<String>,
    limit: Option<RateLimit>,
    children: Vec<DescriptorNode>,
    mode: DescriptorMode,
    /// Whether all values that it matches share one counter.
    is_shared: bool,
    metadata: Option<Arc<Metadata>>,
    span: Range<usize>,
}

/// What a denial of a descriptor means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DescriptorMode {
    Enforce,
    Shadow,
    Quota,
}

struct RateLimit {
    name: Option<String>,
    /// The names of the limits that it replaces.
    replaces: Vec<SpannedName>,
    grant: Granted,
}

enum Granted {
    Unlimited,
    PerUnit(u32, WindowUnit),
}

/// How specific a descriptor is: the lower, the earlier a request finds it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Exact,
    Wildcard,
    Bare,
}

impl DescriptorNode {
    fn rank(&self) -> Rank {
        match self.value.as_deref() {
            None => Rank::Bare,
            Some(value) if value.contains('*') => Rank::Wildcard,
            Some(_) => Rank::Exact,
        }
    }

    /// Its label in messages: `key` or `key_value`.
    fn label(&self) -> String {
        match &self.value {
            Some(value) => format!("{}_{value}", self.key),
            None => self.key.clone(),
        }
    }

    fn pattern(&self) -> Pattern {
        match (&self.value, self.rank()) {
            (Some(value), Rank::Exact) => Pattern::Equals(value.as_str().into()),
            (Some(value), _) => Pattern::Glob(value.as_str().into()),
            (None, _) => Pattern::Glob("*".into()),
        }
    }
}

/// A name, and where the file has it.
type SpannedName = (String, Range<usize>);

/// Limits by the names in the file, which need not be unique.
#[derive(Default)]
struct NamedLimits {
    rules: HashMap<String, Vec<String>>,
    /// The indexes of the rules that replace others, and the names of those.
    replacing: Vec<(usize, Vec<SpannedName>)>,
}

/// Makes rules of a tree.
struct RuleBuilder<'a> {
    domain: String,
    report: &'a mut DiagnosticSink,
    found: &'a mut Vec<ImportedRule>,
    names: &'a mut UniqueNames,
    named: NamedLimits,
    /// How many bytes the paths of all rules have; each rule has its whole path.
    bytes: usize,
}

impl<'a> RuleBuilder<'a> {
    /// Adds the rules of a level, in the order in which requests look for them.
    fn add<'d>(&mut self, level: &'d [DescriptorNode], path: &mut Vec<&'d DescriptorNode>) {
        let mut order: Vec<&DescriptorNode> = level.iter().collect();
        order.sort_by_key(|descriptor| descriptor.rank());
        // How many are still to come, by key.
        let mut later: HashMap<&str, usize> = HashMap::new();
        for descriptor in level {
            *later.entry(&descriptor.key).or_default() += 1;
        }
        for descriptor in order {
            path.push(descriptor);
            if self.is_too_large(path) {
                return;
            }
            self.add(&descriptor.children, path);
            if let Some(limit) = &descriptor.limit {
                self.add_limit(descriptor, limit, path);
            }
            let later = later.entry(&descriptor.key).or_default();
            *later = later.saturating_sub(1);
            if *later > 0 {
                self.add_dead_end(descriptor, path);
            }
            path.pop();
        }
    }

    /// Reports that there are more rules than the bound on memory allows, and stops there.
    fn is_too_large(&mut self, path: &[&DescriptorNode]) -> bool {
        let lengths = path.iter().map(|it| it.key.len() + it.value.as_ref().map_or(0, String::len));
        self.bytes = self.bytes.saturating_add(lengths.sum());
        let is_too_large = self.found.len() >= MOST_RULES || self.bytes > MOST_PATH_BYTES;
        if let Some(last) = path.last().filter(|_| is_too_large && !self.report.has_errors()) {
            self.report.error(last.span.clone(), "the file has too many limits").hint =
                Some("split it, or give fewer values their own limit".into());
        }
        is_too_large
    }

    fn add_limit(
        &mut self,
        descriptor: &DescriptorNode,
        limit: &RateLimit,
        path: &[&DescriptorNode],
    ) {
        let name = self.name(limit.name.as_deref(), path);
        if let Some(given) = &limit.name {
            self.named.rules.entry(given.clone()).or_default().push(name.clone());
        }
        if !limit.replaces.is_empty() {
            self.named.replacing.push((self.found.len(), limit.replaces.clone()));
        }
        let names = || (1..).zip(path).map(|(position, it)| rule_names::entry(position, &it.key));
        let mut rule = match limit.grant {
            Granted::Unlimited => Rule::new(&name, second_of(1)),
            // A cost above the whole window is never allowed.
            Granted::PerUnit(0, unit) => {
                let mut rule = Rule::new(&name, window(1, unit));
                rule.cost = Some(CostTable::fixed(2));
                rule
            }
            Granted::PerUnit(max, unit) => Rule::new(&name, window(max, unit)),
        };
        let is_counted = |(_, descriptor): &(String, &&DescriptorNode)| !descriptor.is_shared;
        let counted = names().zip(path).filter(is_counted).map(|(name, _)| name);
        rule.key = Key { parts: counted.map(|name| KeyPart::Text(name.into())).collect() };
        if let Granted::Unlimited = limit.grant {
            rule.key = Key { parts: names().take(1).map(|it| KeyPart::Text(it.into())).collect() };
            let any = Pattern::Glob("*".into());
            let key = names().take(1).map(|name| condition(&name, any.clone())).collect();
            rule.overrides = vec![Override::new(key, Grant::Unlimited)];
        }
        let count = rule_names::entries(path.len());
        rule.conditions = std::iter::once(count).chain(conditions(path)).collect();
        if descriptor.mode != DescriptorMode::Enforce {
            rule.mode = Mode::Shadow;
        }
        rule.quota_mode = descriptor.mode == DescriptorMode::Quota;
        rule.charging = Charging::Refused;
        rule.metadata.clone_from(&descriptor.metadata);
        self.push(rule, &descriptor.span);
    }

    /// Gives the rules that replace others the names that those got.
    fn resolve_replaced(&mut self) {
        for (index, replaced) in std::mem::take(&mut self.named.replacing) {
            let mut names = Vec::new();
            for (name, span) in replaced {
                match self.named.rules.get(&name) {
                    Some(rules) => names.extend(rules.iter().map(|name| Box::from(&**name))),
                    None => {
                        let message = format!("no limit of the domain has the name `{name}`");
                        let problem = RawDiagnostic::new(Severity::Warning, span, message);
                        self.report.push(problem);
                    }
                }
            }
            if let Some(found) = self.found.get_mut(index) {
                found.rule.replaces = names;
            }
        }
    }

    /// A rule that limits nothing: its key needs an attribute that no request has.
    fn add_dead_end(&mut self, descriptor: &DescriptorNode, path: &[&DescriptorNode]) {
        let name = self.name(Some(&format!("{}, and nothing else", labels(path))), path);
        let mut rule = Rule::new(&name, second_of(1));
        rule.missing = Missing::Skip;
        rule.key = rule_names::placeholder_key();
        rule.conditions = conditions(path).collect();
        self.push(rule, &descriptor.span);
    }

    /// A rule that limits nothing, so that a domain without limits is known: limits sent with
    /// descriptors apply in it.
    fn add_nothing(&mut self, span: &Range<usize>) {
        let message = format!("domain `{}` has no limits", self.domain);
        let mut problem = RawDiagnostic::new(Severity::Warning, span.clone(), message);
        problem.hint = Some("only limits sent with descriptors apply in it".into());
        self.report.push(problem);
        let name = self.names.reserve(&self.domain, "no limit", "");
        let mut rule = Rule::new(&name, second_of(1));
        rule.missing = Missing::Skip;
        rule.key = rule_names::placeholder_key();
        self.push(rule, span);
    }

    fn push(&mut self, mut rule: Rule, span: &Range<usize>) {
        rule.id.domain = (&*self.domain).into();
        rule.group = Some(GROUP.into());
        self.found.push(ImportedRule { rule, span: span.clone() });
    }

    /// The name in the file, or the position in the tree.
    fn name(&mut self, given: Option<&str>, path: &[&DescriptorNode]) -> String {
        let path = labels(path);
        let apart = format!(" ({path})");
        self.names.reserve(&self.domain, given.unwrap_or(&path), &apart)
    }
}

fn labels(path: &[&DescriptorNode]) -> String {
    path.iter().map(|descriptor| descriptor.label()).collect::<Vec<_>>().join(".")
}

fn conditions(path: &[&DescriptorNode]) -> impl Iterator<Item = Condition> {
    let positions = (1..).zip(path);
    positions.map(|(position, it)| condition(&rule_names::entry(position, &it.key), it.pattern()))
}

fn window(max: u32, unit: WindowUnit) -> Limit {
    let window = Window::try_new(u64::from(max).max(1), unit.length());
    Limit::Window(window.unwrap_or_else(|_| unreachable!("32 bits, at most a year")).aligned())
}

fn second_of(max: u32) -> Limit {
    window(max, WindowUnit::Second)
}

/// A level of a tree that is being read.
struct Level<'k> {
    depth: usize,
    options: YamlOptions,
    known: &'k mut KnownNodes,
}

impl Level<'_> {
    /// The descriptors of a list.
    fn nodes(&mut self, list: &Node, report: &mut DiagnosticSink) -> Vec<DescriptorNode> {
        if list.is_nothing() {
            return Vec::new();
        }
        let NodeValue::List(items) = &*list.value else {
            let message = format!("`descriptors` is a list, not {}", list.kind());
            report.error(list.span.clone(), message);
            return Vec::new();
        };
        if self.depth > MOST_COUNTED {
            let message = format!("descriptors are nested deeper than {MOST_COUNTED}");
            report.error(list.span.clone(), message);
            return Vec::new();
        }
        let mut nodes = Vec::new();
        for item in items {
            let Some(node) = self.node(item, report) else { continue };
            match self.known.entry((node.key.clone(), node.value.clone())) {
                Entry::Vacant(entry) => {
                    entry.insert(node.span.clone());
                    nodes.push(node);
                }
                Entry::Occupied(entry) => {
                    let label = node.label();
                    let message = format!("descriptor `{label}` appears twice at this level");
                    let problem = report.error(item.span.clone(), message);
                    problem.hint = Some("remove one".into());
                    problem.note = Some(at_first(entry.get().clone()));
                }
            }
        }
        nodes
    }

    fn node(&self, item: &Node, report: &mut DiagnosticSink) -> Option<DescriptorNode> {
        let fields = fields(item, "a descriptor", &DESCRIPTOR_FIELDS, report)?;
        let Some(key) = fields.text("key", report).filter(|key| !key.is_empty()) else {
            report.error(item.span.clone(), "the descriptor has no `key`");
            return None;
        };
        let value = fields.text("value", report).filter(|value| !value.is_empty());
        if let Err(error) = attribute_name(&key) {
            report.error(item.span.clone(), error.message);
        }
        let is_shadow = fields.flag("shadow_mode", report);
        let is_quota = fields.flag("quota_mode", report) || self.options.is_quota_mode();
        let is_shared = fields.flag("share_threshold", report);
        if is_shared && !value.as_ref().is_some_and(|value| value.contains('*')) {
            let message = "`share_threshold` is for values with a `*`";
            report.error(item.span.clone(), message);
        }
        // Metrics have the name of the rule in any case, and never a value of a request.
        fields.flag("detailed_metric", report);
        fields.flag("value_to_metric", report);
        let mut below = KnownNodes::new();
        let mut below = Level { depth: self.depth + 1, options: self.options, known: &mut below };
        Some(DescriptorNode {
            key,
            value,
            limit: fields.get("rate_limit").and_then(|limit| rate_limit(limit, report)),
            children: fields.get("descriptors").map_or_else(Vec::new, |it| below.nodes(it, report)),
            mode: match (is_shadow, is_quota) {
                (true, _) => DescriptorMode::Shadow,
                (false, true) => DescriptorMode::Quota,
                (false, false) => DescriptorMode::Enforce,
            },
            is_shared,
            metadata: fields.get("metadata").and_then(|it| metadata::read(it, report)),
            span: item.span.clone(),
        })
    }
}

fn rate_limit(limit: &Node, report: &mut DiagnosticSink) -> Option<RateLimit> {
    if limit.is_nothing() {
        return None;
    }
    let fields = fields(limit, "a rate limit", &LIMIT_FIELDS, report)?;
    let name = fields.text("name", report).filter(|name| !name.is_empty());
    let replaces = fields.get("replaces").filter(|it| !it.is_nothing());
    let replaces = replaces.map_or_else(Vec::new, |it| replaced(it, name.as_deref(), report));
    let unit = fields.get("unit").filter(|unit| !unit.is_nothing());
    if fields.flag("unlimited", report) {
        if let Some(unit) = unit {
            report.error(unit.span.clone(), "an unlimited rate limit has no `unit`");
        }
        return Some(RateLimit { name, replaces, grant: Granted::Unlimited });
    }
    let Some(unit) = unit else {
        report.error(limit.span.clone(), "the rate limit has no `unit`").hint = Some(units());
        return None;
    };
    let word = unit.text().unwrap_or_default().to_ascii_lowercase();
    let Some(unit) = WindowUnit::ALL.into_iter().find(|it| it.name() == word) else {
        report.error(unit.span.clone(), format!("`{word}` is not a unit")).hint = Some(units());
        return None;
    };
    // An absent maximum is 0 there.
    let Some(max) = fields.get("requests_per_unit").filter(|max| !max.is_nothing()) else {
        return Some(RateLimit { name, replaces, grant: Granted::PerUnit(0, unit) });
    };
    match max.text().and_then(number::whole) {
        Some(max) => Some(RateLimit { name, replaces, grant: Granted::PerUnit(max, unit) }),
        None => {
            let message = "`requests_per_unit` is a whole number from 0 to 4294967295";
            report.error(max.span.clone(), message);
            None
        }
    }
}

/// The names of the limits that a limit replaces.
fn replaced(list: &Node, own: Option<&str>, report: &mut DiagnosticSink) -> Vec<SpannedName> {
    let NodeValue::List(items) = &*list.value else {
        report.error(list.span.clone(), format!("`replaces` is a list, not {}", list.kind()));
        return Vec::new();
    };
    let mut names = Vec::new();
    for item in items {
        let Some(fields) = fields(item, "a replaced limit", &["name"], report) else { continue };
        match fields.text("name", report).filter(|name| !name.is_empty()) {
            None => {
                report.error(item.span.clone(), "the replaced limit has no `name`");
            }
            Some(name) if Some(&*name) == own => {
                report.error(item.span.clone(), "the limit replaces itself");
            }
            Some(name) => names.push((name, item.span.clone())),
        }
    }
    names
}

fn units() -> String {
    let names: Vec<_> = WindowUnit::ALL.iter().map(|unit| unit.name()).collect();
    format!("write one of {}", names.join(", "))
}

const DESCRIPTOR_FIELDS: [&str; 10] = [
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];
const LIMIT_FIELDS: [&str; 5] = ["unit", "requests_per_unit", "unlimited", "name", "replaces"];
/// The group of all rules of a domain.
const GROUP: &str = "descriptors";
/// As many as a native file may have.
const MOST_RULES: usize = 250_000;
/// Some hundred bytes for each of them.
const MOST_PATH_BYTES: usize = 64 << 20;
