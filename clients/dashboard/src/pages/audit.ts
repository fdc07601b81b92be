// Who changed what, and when.

import { get } from "../api.ts";
import { h, type Child } from "../dom.ts";
import { visible } from "../format.ts";
import type { Context, Page } from "../page.ts";
import { badge, foreign, loadInto, prose, ruleLink, timeOf } from "../parts.ts";
import { table } from "../table.ts";
import type { Change } from "../types.ts";

export function audit(context: Context): Page {
  const { live, signal } = context;
  const list = h("div");
  const load = async (): Promise<Child> => {
    const { changes } = await get<{ changes: Change[] }>("audit?since=0", signal);
    return changeTable([...changes].reverse());
  };
  let version = live.last?.changes;
  void loadInto(list, signal, load);
  live.subscribe(() => {
    const isNew = live.last && live.last.changes !== version;
    if (!isNew || list.contains(document.activeElement)) return;
    version = live.last?.changes;
    void loadInto(list, signal, load);
  }, signal);
  const note = h("p", { class: "muted" }, "The last 1 024 changes, newest first.");
  return { title: "Audit", element: h("div", {}, note, h("div", { class: "card flush" }, list)) };
}

function changeTable(changes: readonly Change[]): HTMLElement {
  return table({
    caption: "Changes",
    rows: changes,
    empty: "Nothing has been changed since the daemon started.",
    columns: [
      { head: "No.", class: "time", cell: ({ number }) => number },
      { head: "Time", class: "time", cell: ({ at }) => timeOf(at) },
      { head: "Actor", cell: ({ actor }) => foreign(actor) },
      {
        head: "Change",
        class: "wide",
        cell: (change) => [
          h("div", { class: "wrap" }, prose(change.description)),
          change.domain && change.rule && ruleLink(change.domain, change.rule),
          change.starts_fresh && badge("starts fresh", "shadow"),
          lines(change),
        ],
      },
    ],
  });
}

function lines({ before, after }: Change): Child {
  const old = text(before);
  const now = text(after);
  if (old === "" && now === "") return null;
  const list = (kind: string, sign: string, value: string): Child =>
    value !== "" &&
    value
      .split("\n")
      .slice(0, 100)
      .map((line) => h("div", { class: `diff ${kind}` }, `${sign} `, visible(line, 500)));
  return h(
    "details",
    {},
    h("summary", {}, "Lines before and after"),
    h("div", { class: "diffs code" }, list("removed", "−", old), list("added", "+", now)),
  );
}

const text = (value: string | number | null | undefined): string =>
  value === null || value === undefined ? "" : String(value).trim();
