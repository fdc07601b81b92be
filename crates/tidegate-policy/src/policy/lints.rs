//! Warnings about probable mistakes in a policy.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::check::{Finding, RelatedKey};
use super::diagnostic::Severity;
use super::paths::PATH;
use super::subsumption::{Subsumption, WorkBudget};
use super::text::quoted;
use super::{Charging, Condition, Effective, Pattern, Rule};
use crate::request_path::EncodedSlash;

/// All warnings. When there are too many rules to compare, some warnings are left out. Paths have one
/// of the `forms`.
pub(crate) fn lint(rules: &[Rule], forms: &[EncodedSlash]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut effort = WorkBudget::new(MOST_STEPS);
    shadowed_in_groups(rules, &mut effort, &mut findings);
    duplicates(rules, &mut findings);
    unknown_replaced(rules, &mut findings);
    below_a_key(rules, &mut effort, &mut findings);
    postpaid_beside_prepaid(rules, &mut effort, &mut findings);
    for (index, rule) in rules.iter().enumerate() {
        shadowed_overrides(index, rule, &mut effort, &mut findings);
        without_effect(index, rule, &mut findings);
        paths_without_effect(index, rule, forms, &mut findings);
    }
    findings
}

fn warning(rule: usize, field: &'static str, message: String) -> Finding {
    Finding::new(Severity::Warning, rule, field, message)
}

/// Rules of a group that never apply, because an earlier one matches all their requests.
fn shadowed_in_groups(rules: &[Rule], effort: &mut WorkBudget, findings: &mut Vec<Finding>) {
    let mut groups = BTreeMap::<_, Vec<usize>>::new();
    for (index, rule) in rules.iter().enumerate() {
        if let Some(group) = &rule.group {
            groups.entry((&rule.id.domain, group)).or_default().push(index);
        }
    }
    for members in groups.into_values().filter(|members| members.len() > 1) {
        let coverage = Subsumption::new(members.iter().map(|at| &*rules[*at].conditions).collect());
        for (at, index) in members.iter().enumerate() {
            let earlier = coverage.of(&rules[*index].conditions, effort).first().copied();
            let Some(first) = earlier.filter(|first| *first < at) else { continue };
            let (rule, first) = (&rules[*index], members[first]);
            let name = quoted(&rules[first].id.name);
            let message = format!(
                "{} never applies: {name} comes first in the group and matches all of its requests",
                quoted(&rule.id.name),
            );
            let other = RelatedKey { rule: first, element: None, text: "the earlier rule is" };
            findings.push(
                warning(*index, "name", message)
                    .hint("put the more specific rule first, or remove it from the group")
                    .other(other),
            );
        }
    }
}

/// Rules that only repeat another one.
fn duplicates(rules: &[Rule], findings: &mut Vec<Finding>) {
    let mut seen = HashMap::new();
    for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.group.is_none()) {
        let Rule { id, conditions, key, limit, cost, mode, charging, overrides, .. } = rule;
        let limit = (limit, cost, mode, charging);
        let all = format!("{:?}", (&id.domain, conditions, key, limit, overrides));
        let first = *seen.entry(all).or_insert(index);
        if first != index {
            let names = (quoted(&rule.id.name), quoted(&rules[first].id.name));
            let message = format!("{} duplicates {}", names.0, names.1);
            let other = RelatedKey { rule: first, element: None, text: "the earlier rule is" };
            findings.push(warning(index, "name", message).hint("remove one of them").other(other));
        }
    }
}

/// Replaced rules that do not exist.
fn unknown_replaced(rules: &[Rule], findings: &mut Vec<Finding>) {
    if rules.iter().all(|rule| rule.replaces.is_empty()) {
        return;
    }
    let known: HashSet<(&str, &str)> =
        rules.iter().map(|rule| (&*rule.id.domain, &*rule.id.name)).collect();
    for (index, rule) in rules.iter().enumerate() {
        let is_unknown = |name: &&str| !known.contains(&(&*rule.id.domain, *name));
        if let Some(name) = rule.replaces().find(is_unknown) {
            let message = format!("no rule of the domain has the name {}", quoted(name));
            findings.push(warning(index, "replaces", message));
        }
    }
}

/// Postpaid rules whose bookings another rule can prevent: where that one denies a request, nothing is
/// booked.
fn postpaid_beside_prepaid(rules: &[Rule], effort: &mut WorkBudget, findings: &mut Vec<Finding>) {
    let mut domains = BTreeMap::<_, Vec<usize>>::new();
    for (index, rule) in rules.iter().enumerate() {
        domains.entry(&rule.id.domain).or_default().push(index);
    }
    let is_postpaid = |index: &usize| rules[*index].charging == Charging::Postpaid;
    for members in domains.into_values() {
        let denies = |index: &usize| !is_postpaid(index) && !rules[*index].is_shadow();
        for &index in members.iter().filter(|index| is_postpaid(index)) {
            let rule = &rules[index];
            let both_apply = |other: &usize| {
                let other = &rules[*other];
                (rule.group.is_none() || rule.group != other.group)
                    && effort.spend(1)
                    && may_both_hold(&rule.conditions, &other.conditions)
            };
            let mut others = members.iter().copied().filter(denies);
            let Some(other) = others.find(both_apply) else { continue };
            let names = (quoted(&rule.id.name), quoted(&rules[other].id.name));
            let message = format!(
                "{} is postpaid and {} is not: the cost of a request that {} denies is not booked",
                names.0, names.1, names.1,
            );
            let other = RelatedKey { rule: other, element: None, text: "the other rule is" };
            findings.push(
                warning(index, "postpaid", message)
                    .hint("match them with different requests, or put them into different domains")
                    .other(other),
            );
        }
    }
}

/// Whether a request may meet both, as far as exact values tell.
fn may_both_hold(one: &[Condition], other: &[Condition]) -> bool {
    let is_exact = |it: &Condition| it.any_of.iter().all(|it| matches!(it, Pattern::Equals(_)));
    one.iter().filter(|it| is_exact(it)).all(|one| {
        let other = other.iter().find(|it| it.attribute == one.attribute && is_exact(it));
        other.is_none_or(|other| other.any_of.iter().any(|it| one.any_of.contains(it)))
    })
}

/// Limits of tokens where Envoy is served: it sends their number when a stream is done, and a query
/// of 0 before.
pub(crate) fn lint_for_envoy(rules: &[Rule]) -> Vec<Finding> {
    let speaks_of_tokens = |rule: &Rule| {
        let texts = [Some(&*rule.id.name), Some(&*rule.id.domain), rule.deny.as_deref()];
        texts.into_iter().flatten().any(|text| text.to_ascii_lowercase().contains("token"))
    };
    let is_prepaid = |rule: &Rule| {
        rule.charging != Charging::Postpaid && rule.cost.is_none() && rule.limit.can_be_postpaid()
    };
    let found = rules.iter().enumerate().filter(|(_, it)| is_prepaid(it) && speaks_of_tokens(it));
    found
        .map(|(index, rule)| {
            let message = format!(
                "{} counts tokens and is not postpaid: Envoy sends their number when a stream is done, \
                 and what is left may be less",
                quoted(&rule.id.name),
            );
            warning(index, "name", message).hint(
                "add `postpaid = true`, so that they are booked in full; or use reservations; a rule \
                 that counts requests has `cost = 1`",
            )
        })
        .collect()
}

/// Limits for all keys that allow less than a limit for one key does.
fn below_a_key(rules: &[Rule], effort: &mut WorkBudget, findings: &mut Vec<Finding>) {
    let mut domains = BTreeMap::<_, (Vec<usize>, Vec<usize>)>::new();
    for (index, rule) in rules.iter().enumerate() {
        let (for_all, per_key) = domains.entry(&rule.id.domain).or_default();
        if rule.key.parts.is_empty() { for_all } else { per_key }.push(index);
    }
    for (for_all, per_key) in domains.into_values() {
        if for_all.is_empty() || per_key.is_empty() {
            continue;
        }
        let coverage = Subsumption::new(for_all.iter().map(|at| &*rules[*at].conditions).collect());
        let mut is_reported = vec![false; for_all.len()];
        for index in per_key {
            let key = &rules[index];
            for at in coverage.of(&key.conditions, effort) {
                let all = &rules[for_all[at]];
                let both_apply = all.group.is_none() || all.group != key.group;
                let same_cost = all.cost == key.cost;
                if both_apply && same_cost && !is_reported[at] && all.limit.is_below(&key.limit) {
                    is_reported[at] = true;
                    findings.push(below(for_all[at], all, index, key));
                }
            }
        }
    }
}

fn below(all_at: usize, all: &Rule, key_at: usize, key: &Rule) -> Finding {
    let names = (quoted(&all.id.name), quoted(&key.id.name));
    let message = format!(
        "{} allows less for all keys together than {} allows for a single key",
        names.0, names.1,
    );
    let other = RelatedKey { rule: key_at, element: None, text: "the limit per key is" };
    warning(all_at, "name", message)
        .hint("raise the limit for all keys, or lower the one per key")
        .other(other)
}

/// Overrides that never apply, because an earlier one covers all of their keys for as long.
fn shadowed_overrides(
    index: usize,
    rule: &Rule,
    effort: &mut WorkBudget,
    found: &mut Vec<Finding>,
) {
    if rule.overrides.len() < 2 {
        return;
    }
    let coverage = Subsumption::new(rule.overrides.iter().map(|one| &*one.key).collect());
    for (at, later) in rule.overrides.iter().enumerate() {
        let lasts = |first: &usize| {
            let until_ns = |at: usize| rule.overrides[at].until_ns.unwrap_or(u64::MAX);
            *first < at && until_ns(*first) >= until_ns(at)
        };
        if let Some(first) = coverage.of(&later.key, effort).into_iter().find(lasts) {
            let message =
                "the override never applies: an earlier one covers all of its keys".into();
            let other =
                RelatedKey { rule: index, element: Some(first), text: "the earlier override is" };
            found.push(
                warning(index, "override", message)
                    .element(at)
                    .hint("put the more specific override first")
                    .other(other),
            );
        }
    }
}

/// Settings without effect, and costs that are never allowed.
fn without_effect(index: usize, rule: &Rule, findings: &mut Vec<Finding>) {
    if rule.effective == Effective::Next && !rule.limit.has_windows() {
        let message = format!("a {} has no next window to wait for", rule.limit.algorithm());
        let hint = "remove `effective`; an edit applies at once";
        findings.push(warning(index, "effective", message).hint(hint));
    }
    let Some(capacity) = rule.limit.capacity() else { return };
    let is_prepaid = rule.charging != Charging::Postpaid;
    let dear = rule
        .cost
        .iter()
        .filter(|_| is_prepaid)
        .flat_map(|table| &table.rows)
        .find(|(_, cost)| *cost > capacity);
    if let Some((_, cost)) = dear {
        let message = format!("a request of cost {cost} is never allowed: the limit is {capacity}");
        findings.push(warning(index, "cost", message).hint("raise the limit, or lower the cost"));
    }
}

/// Patterns of paths that never match.
fn paths_without_effect(
    index: usize,
    rule: &Rule,
    forms: &[EncodedSlash],
    findings: &mut Vec<Finding>,
) {
    let problem = |conditions: &[Condition]| {
        conditions.iter().find_map(|condition| condition.path_problem_in(forms))
    };
    findings.extend(problem(&rule.conditions).map(|message| warning(index, "match", message)));
    for (at, over) in rule.overrides.iter().enumerate() {
        let message = problem(&over.key);
        findings.extend(message.map(|it| warning(index, "override", it).element(at)));
    }
    let costs = rule.cost.iter().filter(|cost| &*cost.by == PATH).map(|cost| {
        let any_of = cost.rows.iter().map(|(pattern, _)| pattern.clone()).collect();
        Condition { attribute: PATH.into(), any_of }
    });
    findings.extend(problem(&costs.collect::<Vec<_>>()).map(|it| warning(index, "cost", it)));
}

/// About a tenth of a second.
const MOST_STEPS: u64 = 10_000_000;
