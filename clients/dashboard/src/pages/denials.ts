// Requests that were denied, and one of them in detail.

import { get, post, query } from "../api.ts";
import { button, field, fill, h, setText, type Child } from "../dom.ts";
import { denialTable, retryText } from "../denial_table.ts";
import { explanationBody } from "../explanation.ts";
import { count, duration, plural } from "../format.ts";
import { go, type Context, type Page } from "../page.ts";
import {
  badge,
  card,
  facts,
  foreign,
  keyChips,
  keyPath,
  loadInto,
  modeBadge,
  notice,
  problemBox,
  prose,
  ruleLink,
  timeOf,
} from "../parts.ts";
import { table } from "../table.ts";
import type { Denial, Denials, Explanation } from "../types.ts";

const LIMIT = 500;

export function denials(context: Context): Page {
  const [id] = context.path;
  if (id !== undefined) return denialPage(context, id);
  const { query: search, signal, live } = context;
  const filters = {
    domain: search.get("domain") ?? "",
    rule: search.get("rule") ?? "",
    text: search.get("text") ?? "",
  };
  const list = h("div");
  const note = h("p", { class: "muted" });
  const load = async (): Promise<Child> => {
    fresh = 0;
    showFresh();
    const found = await get<Denials>(`denials${query({ ...filters, limit: LIMIT })}`, signal);
    fill(note, keptText(found));
    return denialTable(found.denials, "No denial is kept that matches.");
  };
  let fresh = 0;
  const refresh = button("Refresh", () => void loadInto(list, signal, load));
  const showFresh = (): void =>
    setText(refresh, fresh === 0 ? "Refresh" : `Refresh (${plural(fresh, "newer denial")})`);
  let seen = live.last?.time_ms ?? 0;
  live.subscribe(() => {
    if (!live.last || live.last.time_ms <= seen) return;
    seen = live.last.time_ms;
    fresh += live.last.denied;
    showFresh();
  }, signal);
  void loadInto(list, signal, load);
  const element = h(
    "div",
    {},
    h("div", { class: "card" }, h("div", { class: "filters" }, filterForm(filters), searchForm())),
    h("div", { class: "toolbar" }, refresh, note),
    h("div", { class: "card flush" }, list),
  );
  return { title: "Denials", element };
}

function keptText(found: Denials): Child {
  return [
    `${plural(found.kept, "denial")} kept`,
    found.oldest && [" since ", timeOf(found.oldest)],
    found.not_kept > 0 && `; ${count(found.not_kept)} were not kept`,
    found.denials.length >= LIMIT && `; the newest ${count(LIMIT)} are shown`,
    ".",
  ];
}

function textInput(name: string, value: string): HTMLInputElement {
  const input = h("input", { type: "search", name, autocomplete: "off", spellcheck: "false" });
  input.value = value;
  return input;
}

function filterForm(filters: Record<"domain" | "rule" | "text", string>): HTMLElement {
  const domain = textInput("domain", filters.domain);
  const rule = textInput("rule", filters.rule);
  const words = textInput("text", filters.text);
  return h(
    "form",
    {
      class: "fields",
      role: "search",
      "aria-label": "Filter denials",
      on: {
        submit: (event) => {
          event.preventDefault();
          go(`#/denials${query({ domain: domain.value, rule: rule.value, text: words.value })}`);
        },
      },
    },
    field("Domain", domain),
    field("Rule", rule),
    field("Text", words, "of an attribute"),
    h("div", { class: "field" }, h("button", { type: "submit", class: "button" }, "Filter")),
  );
}

function searchForm(): HTMLElement {
  const id = textInput("decision_id", "");
  id.required = true;
  return h(
    "form",
    {
      class: "fields",
      "aria-label": "Find a decision",
      on: {
        submit: (event) => {
          event.preventDefault();
          go(`#/denials/${encodeURIComponent(id.value.trim())}`);
        },
      },
    },
    field("Decision id", id, "decision_id of a response"),
    h("div", { class: "field" }, h("button", { type: "submit", class: "button" }, "Find")),
  );
}

function denialPage(context: Context, id: string): Page {
  const body = h("div");
  void loadInto(body, context.signal, async () => {
    const found = await get<Denials>(`denials${query({ decision_id: id })}`, context.signal);
    const denial = found.denials[0];
    if (!denial) {
      return notice(
        "warning",
        "No denial with this id is kept. It was allowed, is too old, or there were too many at once. ",
        keptText(found),
      );
    }
    return denialBody(context, denial);
  });
  const back = h("p", {}, h("a", { href: "#/denials" }, "← All denials"));
  return { title: `Denial ${id.slice(0, 40)}`, element: h("div", {}, back, body) };
}

function denialBody(context: Context, denial: Denial): Child {
  const now = h("div");
  const { domain, attributes } = denial;
  const explain = (): void => {
    fill(now);
    void loadInto(now, context.signal, async () =>
      explanationBody(
        await post<Explanation>("explain", { domain, attributes }, context.signal),
        null,
      ),
    ).catch((error: unknown) => fill(now, problemBox(error)));
  };
  const actions = h(
    "div",
    { class: "actions" },
    button("Explain the same request now", explain, "primary"),
    h("a", { class: "button", href: keyPath(domain, attributes) }, "Open its keys"),
  );
  return [
    h(
      "p",
      { class: "verdict denied" },
      h("strong", {}, "Denied"),
      denial.rule === null ? " in domain " : " by ",
      denial.rule === null ? foreign(domain, "name") : ruleLink(domain, denial.rule),
      denial.reason && [": ", prose(denial.reason)],
    ),
    h(
      "div",
      { class: "two uneven" },
      card(
        "Request",
        facts([
          ["time", timeOf(denial.time)],
          ["listener", denial.listener],
          ["domain", foreign(domain, "code")],
          ["attributes", keyChips(attributes)],
          ["decision", h("code", {}, denial.decision_id)],
          ["key", keyChips(denial.key)],
          ["allowed again", retryText(denial.retry_after_ms, denial.retry)],
        ]),
      ),
      card("The rules' part", partsTable(denial)),
    ),
    card("Now", isCut(attributes) ? cutNotice() : actions, now),
  ];
}

/** Whether the daemon has kept only the beginning of a long value. */
const isCut = (attributes: Record<string, string>): boolean =>
  Object.values(attributes).some((value) => /… \(\d+ bytes\)$/.test(value));

function cutNotice(): HTMLElement {
  return notice(
    "info",
    "Only the beginning of a long value was kept, so this request cannot be explained again.",
  );
}

function partsTable({ domain, rules }: Denial): HTMLElement {
  return table({
    caption: "Rules of the decision",
    rows: rules,
    empty: "No rule took part: a ban or a setting denied it.",
    columns: [
      { head: "Rule", cell: (part) => ruleLink(domain, part.rule) },
      {
        head: "Verdict",
        cell: (part) => [
          badge(part.allowed ? "allowed" : "denied", part.allowed ? "allowed" : "denied"),
          part.mode === "shadow" && [" ", modeBadge("shadow")],
        ],
      },
      {
        head: "Remaining",
        class: "num",
        cell: ({ remaining, limit }) =>
          `${remaining === null ? "–" : count(remaining)} of ${limit === null ? "–" : count(limit)}`,
      },
      { head: "Retry", class: "num", cell: (part) => retryText(part.retry_after_ms) },
      { head: "Full after", class: "num", cell: (part) => duration(part.reset_after_ms) },
    ],
  });
}
