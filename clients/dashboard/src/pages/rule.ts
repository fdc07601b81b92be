// One rule: what it does now, its fields, and changes to it.

import { get, query } from "../api.ts";
import { chartStart, createChart } from "../chart.ts";
import { button, fill, h, setText, type Child } from "../dom.ts";
import { count, percent, rate, visible } from "../format.ts";
import { isTable, limitKind, text } from "../limits.ts";
import type { Context, Page } from "../page.ts";
import {
  badge,
  card,
  facts,
  foreign,
  loadInto,
  mayNotChange,
  modeBadge,
  notice,
  prose,
} from "../parts.ts";
import { overrideTable } from "../overrides.ts";
import { editCard, shadowCard } from "../rule_edit.ts";
import type { Denials, OverrideEntry, Rule, Table } from "../types.ts";
import { denialTable } from "../denial_table.ts";
import { shareDenied } from "./rules.ts";

interface RuleList {
  rules: Rule[];
  version: number;
}

const RECENT_DENIALS = 10;
const CHART_SECONDS = 900;

export function rulePage(context: Context, domain: string, name: string): Page {
  const body = h("div");
  const changed = h("div", { role: "status" });
  const { signal } = context;
  const load = async (): Promise<Child> => {
    const [rules, overrides, denials] = await Promise.all([
      get<RuleList>("rules", signal),
      get<{ overrides: OverrideEntry[] }>("overrides", signal),
      get<Denials>(`denials${query({ domain, rule: name, limit: RECENT_DENIALS })}`, signal),
    ]);
    const rule = rules.rules.find((it) => it.domain === domain && it.name === name);
    if (!rule) return notice("error", "There is no such rule in force.");
    const own = overrides.overrides.filter((it) => it.domain === domain && it.rule === name);
    watchRule(context, rule, rules.version, changed);
    return ruleBody(context, rule, own, denials);
  };
  void loadInto(body, signal, load);
  const back = h("p", {}, h("a", { href: "#/rules" }, "← All rules"));
  return { title: visible(`${domain}/${name}`, 120), element: h("div", {}, back, changed, body) };
}

/** Shows a notice when another client, or a file, has changed the rule. */
function watchRule(context: Context, rule: Rule, version: number, target: HTMLElement): void {
  const { live, signal } = context;
  let seen = version;
  const compare = async (): Promise<void> => {
    const { rules } = await get<RuleList>("rules", signal);
    const now = rules.find(({ domain, name }) => domain === rule.domain && name === rule.name);
    const isSame = now && JSON.stringify(now.rule) === JSON.stringify(rule.rule);
    const show = button("Show it as it is now", context.reload, "small");
    fill(target, !isSame && notice("warning", "This rule has been changed meanwhile. ", show));
  };
  live.subscribe(() => {
    if (!live.last || live.last.changes <= seen) return;
    seen = live.last.changes;
    compare().catch(() => undefined);
  }, signal);
}

function ruleBody(
  context: Context,
  rule: Rule,
  overrides: readonly OverrideEntry[],
  denials: Denials,
): Child {
  return [
    h(
      "p",
      { class: "lead" },
      modeBadge(rule.mode),
      rule.origin !== "policy" && badge(rule.origin, "edited"),
      " ",
      prose(rule.description),
    ),
    traffic(context, rule),
    h(
      "div",
      { class: "two" },
      card("Fields", ruleFacts(rule.rule)),
      context.session.may_change
        ? h("div", { class: "stack" }, shadowCard(context, rule), editCard(context, rule))
        : card("Changes", mayNotChange()),
    ),
    card("Overrides", overrideTable(context, overrides), policyOverrides(rule.rule)),
    card(
      "Recent denials",
      denialTable(denials.denials, "None kept of this rule."),
      h(
        "p",
        {},
        h(
          "a",
          { href: `#/denials${query({ domain: rule.domain, rule: rule.name })}` },
          "All of them",
        ),
      ),
    ),
  ];
}

function traffic(context: Context, rule: Rule): HTMLElement {
  const { live, signal } = context;
  const chart = createChart({
    title: "Decisions per second, in steps of 10 s",
    signal,
    format: rate,
    height: 160,
    series: [
      { label: "allowed", color: "allowed", isFilled: true },
      { label: "denied", color: "denied", isFilled: true },
      { label: "shadow denied", color: "shadow", dash: [5, 3] },
    ],
  });
  const values = [h("span"), h("span"), h("span"), h("span")] as const;
  const update = (): void => {
    const now = live.rules.now(rule.domain, rule.name);
    setText(values[0], `${rate(now.allowed)}/s`);
    setText(values[1], `${rate(now.denied + now.shadow_denied)}/s`);
    setText(values[2], percent(shareDenied(context, rule.domain, rule.name)));
    setText(values[3], `${count(rule.allowed)} / ${count(rule.denied)}`);
    const series = live.rules.get(rule.domain, rule.name);
    const seconds = live.rules.time.map((ms) => ms / 1000);
    const zeros = seconds.map(() => 0);
    const rates = (counts: readonly number[] | undefined): number[] =>
      counts ? counts.map((n) => n / 10) : zeros;
    const since = chartStart(seconds, CHART_SECONDS);
    chart.draw(
      seconds,
      [rates(series?.allowed), rates(series?.denied), rates(series?.shadow)],
      since,
    );
  };
  live.subscribe(update, signal);
  update();
  const names = ["Allowed now", "Denied now", "Share denied, 15 min", "Allowed / denied at load"];
  return h(
    "div",
    { class: "traffic" },
    h(
      "div",
      { class: "tiles" },
      names.map((name, index) =>
        h(
          "div",
          { class: "tile" },
          h("div", { class: "tile-name" }, name),
          h("div", { class: "tile-value" }, values[index]),
        ),
      ),
    ),
    chart.element,
  );
}

function ruleFacts(rule: Table): HTMLElement {
  const kind = limitKind(rule);
  const rows: [string, Child][] = [];
  for (const [name, value] of Object.entries(rule)) {
    if (name === "override") continue;
    if (name === kind && isTable(value)) {
      for (const [part, number] of Object.entries(value)) {
        rows.push([`${kind}.${part}`, foreign(text(number), "code")]);
      }
    } else rows.push([name, foreign(text(value), "code wrap")]);
  }
  return facts(rows);
}

function policyOverrides(rule: Table): Child {
  const overrides = Array.isArray(rule["override"]) ? rule["override"] : [];
  if (overrides.length === 0) return null;
  return h(
    "details",
    {},
    h("summary", {}, `In the policy: ${count(overrides.length)}`),
    h(
      "ul",
      { class: "lines" },
      overrides.slice(0, 100).map((entry) => h("li", {}, foreign(text(entry), "code"))),
    ),
  );
}
