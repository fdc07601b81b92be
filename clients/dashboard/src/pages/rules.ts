// All rules, with what they decide now.

import { get } from "../api.ts";
import { fill, h, setText } from "../dom.ts";
import { count, percent, rate } from "../format.ts";
import { shortLimit } from "../limits.ts";
import type { Context, Page } from "../page.ts";
import { badge, foreign, loadInto, modeBadge, prose, ruleLink } from "../parts.ts";
import { sparkline, type Sparkline } from "../sparkline.ts";
import { table } from "../table.ts";
import type { Rule } from "../types.ts";
import { rulePage } from "./rule.ts";

interface LiveRow {
  readonly rate: HTMLElement;
  readonly share: HTMLElement;
  readonly spark: Sparkline;
}

export function rules(context: Context): Page {
  const [domain, name] = context.path;
  if (domain !== undefined && name !== undefined) return rulePage(context, domain, name);
  const { live, signal } = context;
  let all: readonly Rule[] = [];
  let rows = new Map<Rule, LiveRow>();
  let version = live.last?.changes;
  const summary = h("p", { class: "muted", role: "status" });
  const list = h("div");
  const filter = h("input", {
    type: "search",
    placeholder: "Filter by name, domain, text or mode",
    "aria-label": "Filter rules",
    autocomplete: "off",
    on: { input: () => show() },
  });
  filter.value = context.query.get("filter") ?? "";

  const show = (): void => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = all.filter((rule) => {
      const text = `${rule.domain}/${rule.name} ${rule.mode} ${rule.origin} ${rule.description}`;
      return words.every((word) => text.toLowerCase().includes(word));
    });
    rows = new Map();
    setText(summary, `${count(chosen.length)} of ${count(all.length)} rules`);
    fill(list, ruleTable(chosen, rows));
    update(rows, context);
  };
  const load = async (): Promise<null> => {
    all = (await get<{ rules: Rule[] }>("rules", signal)).rules;
    return null;
  };
  void loadInto(list, signal, load).then(() => all.length > 0 && show());
  live.subscribe(() => {
    if (live.last && live.last.changes !== version) {
      version = live.last.changes;
      void load().then(show, () => undefined);
    }
    update(rows, context);
  }, signal);
  const element = h(
    "div",
    {},
    h("div", { class: "toolbar" }, filter, summary),
    h("div", { class: "card flush" }, list),
  );
  return { title: "Rules", element };
}

function ruleTable(chosen: readonly Rule[], rows: Map<Rule, LiveRow>): HTMLElement {
  const cells = (rule: Rule): LiveRow => {
    const row = rows.get(rule) ?? { rate: h("span"), share: h("span"), spark: sparkline() };
    rows.set(rule, row);
    return row;
  };
  return table({
    caption: "Rules",
    rows: chosen,
    empty: "No rule matches.",
    columns: [
      {
        head: "Rule",
        class: "rule-cell",
        cell: (rule) => [
          ruleLink(rule.domain, rule.name),
          rule.origin !== "policy" && badge(rule.origin, "edited"),
          h("div", { class: "muted clamp" }, prose(rule.description, 400)),
        ],
      },
      { head: "Mode", cell: (rule) => modeBadge(rule.mode) },
      { head: "Limit", cell: (rule) => foreign(shortLimit(rule.rule), "code") },
      { head: "Per second", class: "num", cell: (rule) => cells(rule).rate },
      { head: "Denied", class: "num", cell: (rule) => cells(rule).share },
      {
        head: "15 min",
        class: "spark-cell",
        cell: (rule) => cells(rule).spark.element,
      },
    ],
  });
}

/** The share of requests that a rule denied, or would have, in the last 15 minutes. */
export function shareDenied(context: Context, domain: string, name: string): number | null {
  const { allowed, denied, shadow_denied } = context.live.rules.total(domain, name);
  const all = allowed + denied + shadow_denied;
  return all === 0 ? null : (denied + shadow_denied) / all;
}

function update(rows: ReadonlyMap<Rule, LiveRow>, context: Context): void {
  for (const [{ domain, name }, row] of rows) {
    const now = context.live.rules.now(domain, name);
    setText(row.rate, rate(now.allowed + now.denied + now.shadow_denied));
    setText(row.share, percent(shareDenied(context, domain, name)));
    row.spark.draw(context.live.rules.get(domain, name));
  }
}
