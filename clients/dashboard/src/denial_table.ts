// Denials as rows.

import { h } from "./dom.ts";
import { duration } from "./format.ts";
import { foreign, keyChips, ruleLink, timeOf } from "./parts.ts";
import { table } from "./table.ts";
import type { Denial } from "./types.ts";

/** When a denied request would be allowed. */
export function retryText(retryMs: number | null, retry?: string | null): string {
  if (retry === "never") return "never";
  if (retry === "unknown" || retryMs === null) return "not known";
  return retryMs === 0 ? "now" : `after ${duration(retryMs)}`;
}

export function denialTable(denials: readonly Denial[], empty: string): HTMLElement {
  return table({
    caption: "Denials",
    rows: denials,
    empty,
    step: 50,
    columns: [
      {
        head: "Time",
        class: "time",
        cell: (denial) =>
          h(
            "a",
            { href: `#/denials/${encodeURIComponent(denial.decision_id)}` },
            timeOf(denial.time),
          ),
      },
      {
        head: "Rule",
        cell: ({ domain, rule }) =>
          rule === null ? foreign(domain, "name") : ruleLink(domain, rule),
      },
      { head: "Key", cell: ({ key, attributes }) => keyChips(key ?? attributes) },
      { head: "Allowed again", cell: (it) => retryText(it.retry_after_ms, it.retry) },
      { head: "Decision", cell: ({ decision_id: id }) => h("code", {}, id) },
    ],
  });
}
