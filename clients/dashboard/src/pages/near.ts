// Keys that have used most of a limit.

import { get, query } from "../api.ts";
import { button, field, fill, h } from "../dom.ts";
import { count, duration } from "../format.ts";
import { go, type Context, type Page } from "../page.ts";
import { isAbort } from "../api.ts";
import {
  badge,
  keyChips,
  keyPath,
  notice,
  problemBox,
  prose,
  ruleLink,
  usageBar,
} from "../parts.ts";
import { table } from "../table.ts";
import type { KeyUsage } from "../types.ts";

interface UsagePage {
  keys: KeyUsage[];
  cursor: string | null;
  complete: boolean;
  note: string | null;
}

const PAGE = 100;
/** Pages on the screen at most; the oldest goes first. */
const PAGES_MAX = 20;

export function near(context: Context): Page {
  const { query: search, signal } = context;
  const filters = {
    domain: search.get("domain") ?? "",
    rule: search.get("rule") ?? "",
    over: search.get("over") ?? "0.8",
  };
  const pages = h("div");
  const note = h("div");
  const more = button("Show more", () => void load(cursor), "more");
  more.hidden = true;
  let cursor: string | null = null;
  const load = async (from: string | null): Promise<void> => {
    more.disabled = true;
    try {
      const path = `usage${query({ ...filters, limit: PAGE, cursor: from })}`;
      const found = await get<UsagePage>(path, signal);
      pages.append(usageTable(found.keys, filters.over));
      if (pages.childElementCount > PAGES_MAX) pages.firstElementChild?.remove();
      cursor = found.cursor;
      more.hidden = cursor === null;
      fill(
        note,
        found.note &&
          notice(
            found.complete ? "info" : "warning",
            h("strong", {}, "Not all keys are known: "),
            prose(found.note),
          ),
      );
    } catch (error) {
      if (!isAbort(error)) fill(note, problemBox(error));
    }
    more.disabled = false;
  };
  void load(null);
  const element = h(
    "div",
    {},
    h("div", { class: "card" }, filterForm(filters)),
    h("div", { class: "card flush" }, pages, more),
    note,
  );
  return { title: "Near the limit", element };
}

function filterForm(filters: { domain: string; rule: string; over: string }): HTMLElement {
  const domain = h("input", { type: "search", name: "domain", autocomplete: "off" });
  const rule = h("input", { type: "search", name: "rule", autocomplete: "off" });
  const over = h("input", {
    type: "number",
    name: "over",
    min: 1,
    max: 1000,
    step: "any",
    required: true,
  });
  domain.value = filters.domain;
  rule.value = filters.rule;
  over.value = String(Math.round(Number(filters.over) * 1000) / 10 || 80);
  return h(
    "form",
    {
      class: "fields",
      role: "search",
      "aria-label": "Filter keys",
      on: {
        submit: (event) => {
          event.preventDefault();
          const share = Number(over.value) / 100;
          go(`#/near${query({ domain: domain.value, rule: rule.value, over: share })}`);
        },
      },
    },
    field("Used at least, in %", over),
    field("Domain", domain),
    field("Rule", rule),
    h("div", { class: "field" }, h("button", { type: "submit", class: "button" }, "Show")),
  );
}

const SOURCES: Record<string, string> = {
  ledger: "log on disk",
  override: "override",
  busiest: "busiest keys",
};

function usageTable(keys: readonly KeyUsage[], over: string): HTMLElement {
  return table({
    caption: "Keys near their limit",
    rows: keys,
    empty: `No known key has used ${Math.round(Number(over) * 100)} % of a limit.`,
    step: PAGE,
    columns: [
      {
        head: "Key",
        cell: ({ domain, key }) => h("a", { href: keyPath(domain, key) }, keyChips(key)),
      },
      {
        head: "Rule",
        cell: ({ domain, rule, mode }) => [
          ruleLink(domain, rule),
          mode === "shadow" && [" ", badge("shadow", "shadow")],
        ],
      },
      { head: "Used", cell: ({ share }) => usageBar(share) },
      {
        head: "Units",
        class: "num",
        cell: ({ used, held, limit }) =>
          `${count(used)}${held > 0 ? ` + ${count(held)} held` : ""} of ${limit === null ? "–" : count(limit)}`,
      },
      { head: "Full after", class: "num", cell: (it) => duration(it.reset_after_ms) },
      { head: "Known by", cell: ({ source }) => SOURCES[source] ?? source },
    ],
  });
}
