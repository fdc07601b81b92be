// What a change would do, before it is applied.

import { isAbort, post } from "./api.ts";
import { fill, h, type Child } from "./dom.ts";
import { openDialog } from "./dialog.ts";
import { count, percent, plural } from "./format.ts";
import { diagnosticList, foreign, keyChips, notice, problemBox, prose, timeOf } from "./parts.ts";
import { table } from "./table.ts";
import type { Estimate, Preview } from "./types.ts";

/** Opens a dialog with the preview of `request`; `apply` runs when it is accepted. */
export function openPreview(
  title: string,
  request: unknown,
  apply: () => Promise<void>,
  failed?: (error: unknown) => void,
): void {
  const body = h("div", { class: "preview" }, h("p", { class: "muted" }, "Computing the preview…"));
  const dialog = openDialog({ title, body, action: "Apply", act: apply });
  dialog.enable(false);
  post<Preview>("preview", request).then(
    (preview) => {
      fill(body, previewBody(preview));
      dialog.enable(preview.lines.length > 0);
    },
    (error: unknown) => {
      if (isAbort(error)) return;
      fill(body, problemBox(error));
      failed?.(error);
    },
  );
}

function previewBody(preview: Preview): Child {
  if (preview.lines.length === 0) return notice("info", "No change: this is already in force.");
  return [
    h("h3", {}, plural(preview.lines.length, "change")),
    h(
      "ul",
      { class: "lines" },
      preview.lines.slice(0, 200).map((line) => h("li", {}, prose(line))),
      preview.lines.length > 200 &&
        h("li", { class: "muted" }, `and ${preview.lines.length - 200} more`),
    ),
    preview.warnings.length > 0 && [h("h3", {}, "Warnings"), diagnosticList(preview.warnings)],
    preview.rules
      .slice(0, 50)
      .map((rule) =>
        h(
          "section",
          { class: "estimate" },
          h("h3", {}, "Effect on ", foreign(`${rule.domain}/${rule.rule}`, "name")),
          h("p", { class: "muted" }, prose(rule.description)),
          rule.starts_fresh &&
            notice("warning", "This rule starts fresh: what its keys have used is forgotten."),
          rule.estimate
            ? estimateBody(rule.estimate)
            : notice(
                "info",
                `No estimate: ${rule.why_not ?? "the traffic of this rule is not known"}.`,
              ),
        ),
      ),
  ];
}

function estimateBody(estimate: Estimate): Child {
  const about = estimate.is_exact ? "" : "about ";
  const basis = estimate.is_exact
    ? `Exact: computed from all ${plural(estimate.keys, "key")} of the recorded traffic.`
    : `An estimate, from ${percent(estimate.share)} of the keys ` +
      `(${count(estimate.sampled_keys)} of about ${count(estimate.keys)}), scaled up.`;
  const delta = estimate.denied_after - estimate.denied_before;
  const sign = delta > 0 ? "+" : delta < 0 ? "−" : "±";
  return [
    h(
      "p",
      { class: "estimate-head" },
      h(
        "strong",
        { class: delta > 0 ? "bad" : "good" },
        `${about}${sign}${count(Math.abs(delta))} denials`,
      ),
      ` of ${about}${plural(estimate.requests, "request")} between `,
      timeOf(estimate.since),
      " and ",
      timeOf(estimate.until),
    ),
    h("p", { class: estimate.is_exact ? "muted" : "estimate-mark" }, basis),
    table({
      caption: "What would have changed",
      empty: "",
      rows: [["Denied", estimate.denied_before, estimate.denied_after] as const],
      columns: [
        { head: "Requests", cell: ([name]) => name },
        { head: "As it is", class: "num", cell: ([, before]) => about + count(before) },
        { head: "With the change", class: "num", cell: ([, , after]) => about + count(after) },
      ],
    }),
    h(
      "p",
      {},
      `${about}${plural(estimate.newly_denied, "request")} newly denied ` +
        `(${about}${plural(estimate.keys_newly_denied, "key")}), ` +
        `${about}${count(estimate.no_longer_denied)} no longer denied ` +
        `(${about}${plural(estimate.keys_no_longer_denied, "key")}).`,
    ),
    estimate.top.length > 0 &&
      table({
        caption: "Keys with the largest difference",
        empty: "",
        step: 10,
        rows: estimate.top,
        columns: [
          { head: "Key", cell: ({ key }) => keyChips(key) },
          { head: "Requests", class: "num", cell: ({ requests }) => count(requests) },
          { head: "Denied now", class: "num", cell: (row) => count(row.denied_before) },
          { head: "With the change", class: "num", cell: (row) => count(row.denied_after) },
        ],
      }),
  ];
}
