// Why a request would be allowed or denied now.

import { h, type Child } from "./dom.ts";
import { count, duration, visible } from "./format.ts";
import { badge, keyChips, modeBadge, prose, ruleLink, timeOf, usageBar } from "./parts.ts";
import { retryText } from "./denial_table.ts";
import { table } from "./table.ts";
import type { ExplainedRule, Explanation, RuleUsage } from "./types.ts";

export function verdict(explanation: Explanation): HTMLElement {
  const { allowed, rule, reason, domain } = explanation;
  if (allowed) {
    return h(
      "p",
      { class: "verdict allowed" },
      h("strong", {}, "Allowed now"),
      rule !== null && [", closest to its limit: ", ruleLink(domain, rule)],
    );
  }
  const retry = retryText(explanation.retry_after_ms, explanation.retry);
  return h(
    "p",
    { class: "verdict denied" },
    h("strong", {}, "Denied now"),
    rule !== null && [" by ", ruleLink(domain, rule)],
    reason !== null && [": ", prose(reason)],
    ". Allowed again: ",
    explanation.next_allowed ? [timeOf(explanation.next_allowed), ` (${retry})`] : retry,
  );
}

/** The verdict, and every rule with its part; with the usage of each, if it is known. */
export function explanationBody(
  explanation: Explanation,
  usage: readonly RuleUsage[] | null,
): Child {
  const used = new Map((usage ?? []).map((it) => [it.rule, it]));
  return [verdict(explanation), ruleTable(explanation, usage === null ? null : used)];
}

function ruleTable(
  { domain, rules }: Explanation,
  used: ReadonlyMap<string, RuleUsage> | null,
): HTMLElement {
  const usageColumns = used
    ? [
        {
          head: "Used",
          cell: (rule: ExplainedRule) => {
            const it = used.get(rule.rule);
            return it ? usageCell(it) : h("span", { class: "muted" }, "–");
          },
        },
      ]
    : [];
  return table<ExplainedRule>({
    caption: "Every rule of the domain",
    rows: rules,
    empty: "This domain has no rules.",
    columns: [
      { head: "Rule", cell: ({ rule }) => ruleLink(domain, rule) },
      { head: "Verdict", cell: verdictCell },
      { head: "Key", cell: (rule) => (rule.applies ? keyChips(rule.key ?? {}) : whyNot(rule)) },
      ...usageColumns,
      {
        head: "Remaining",
        class: "num",
        cell: (rule) => (rule.applies ? `${number(rule.remaining)} of ${number(rule.limit)}` : ""),
      },
      {
        head: "Next allowed",
        class: "num",
        cell: (rule) => (rule.applies ? retryText(rule.retry_after_ms ?? null, rule.retry) : ""),
      },
    ],
  });
}

const number = (value: number | null | undefined): string =>
  value === null || value === undefined ? "–" : count(value);

function whyNot(rule: ExplainedRule): HTMLElement {
  return h("span", { class: "muted" }, visible(rule.why ?? "", 300));
}

function verdictCell(rule: ExplainedRule): Child {
  if (!rule.applies) return badge("does not apply");
  return [
    rule.allowed
      ? badge("allows", "allowed")
      : badge(rule.denies ? "denies" : "would deny", "denied"),
    rule.mode === "shadow" && [" ", modeBadge("shadow")],
    rule.override !== null && rule.override !== undefined && [" ", badge("override", "edited")],
  ];
}

function usageCell(usage: RuleUsage): Child {
  return [
    usageBar(usage.share),
    h(
      "div",
      { class: "muted" },
      `${count(usage.used)} used${usage.held > 0 ? `, ${count(usage.held)} held` : ""}; full again ` +
        (usage.reset_after_ms === null
          ? "at a time not known"
          : usage.reset_after_ms === 0
            ? "now"
            : `in ${duration(usage.reset_after_ms)}`),
    ),
  ];
}
