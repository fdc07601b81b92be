// Overrides and bans: lists, and dialogs that set and remove them.

import { request } from "./api.ts";
import { openDialog } from "./dialog.ts";
import { button, field, h } from "./dom.ts";
import { visible } from "./format.ts";
import { isTable, LIMITS, limitKind, parseField, text } from "./limits.ts";
import type { Context } from "./page.ts";
import { foreign, keyChips, ruleLink, timeOf } from "./parts.ts";
import { fieldInput } from "./rule_form.ts";
import { table } from "./table.ts";
import type { Ban, Json, Key, Matches, OverrideEntry, Rule, Table } from "./types.ts";

/**
 * A pattern that matches this value alone. Text with `*`, `..` or a slash, or that begins with `=`,
 * would be read as a pattern; networks are patterns on purpose where the attribute is an address.
 */
export function exactly(name: string, value: string): string {
  const isAddress = name === "ip" && /^[0-9a-fA-F.:]+(\/\d+)?$/.test(value);
  return !isAddress && /[*/:]|\.\.|^=|^[\d.]+$/.test(value) ? `=${value}` : value;
}

export function exactMatch(key: Key): Matches {
  const match: Matches = {};
  for (const [name, value] of Object.entries(key)) {
    if (value !== null) match[name] = exactly(name, value);
  }
  return match;
}

/** Patterns as chips. */
function matchChips(match: Matches): HTMLElement {
  const entries = Object.entries(match).map(([name, value]): [string, string] => [
    name,
    Array.isArray(value) ? value.join(", ") : String(value),
  ]);
  return keyChips(Object.fromEntries(entries));
}

function overrideText(entry: OverrideEntry): string {
  if (entry.unlimited) return "unlimited";
  const { domain: _, rule: __, key: ___, until: ____, ...limit } = entry;
  const parts = Object.entries(limit).flatMap(([name, value]) =>
    isTable(value) ? Object.entries(value) : [[name, value] as const],
  );
  return parts.map(([name, value]) => `${name} ${text(value as Json)}`).join(", ");
}

export function overrideTable(context: Context, overrides: readonly OverrideEntry[]): HTMLElement {
  return table({
    caption: "Overrides set at run time",
    rows: overrides,
    empty: "None set at run time.",
    step: 20,
    columns: [
      { head: "Rule", cell: (entry) => ruleLink(entry.domain, entry.rule) },
      { head: "Key", cell: (entry) => matchChips(entry.key) },
      { head: "Limit", cell: (entry) => foreign(overrideText(entry), "code") },
      { head: "Until", cell: (entry) => (entry.until ? timeOf(entry.until) : "no end") },
      {
        head: "Action",
        cell: (entry) =>
          context.session.may_change &&
          button("Remove", () => removeOverride(context, entry), "small"),
      },
    ],
  });
}

export function removeOverride(context: Context, { domain, rule, key }: OverrideEntry): void {
  openDialog({
    title: "Remove the override",
    body: h("p", {}, "The rule's own limit counts again for ", matchChips(key)),
    action: "Remove",
    isDanger: true,
    act: async () => {
      await request("overrides", { method: "DELETE", body: { domain, rule, key } });
      context.say("The override is removed.");
      context.reload();
    },
  });
}

/** A dialog that gives a key other numbers. */
export function setOverride(context: Context, rule: Rule, key: Key): void {
  const kind = limitKind(rule.rule);
  const limit = rule.rule[kind];
  const isPlain = kind === "cooldown";
  const entries = isPlain
    ? [{ name: "cooldown", label: "Cooldown", kind: "text" as const, hint: "such as 10s" }]
    : (LIMITS[kind] ?? []).filter(({ name }) => name !== "align" && name !== "priority");
  const before = (name: string): string => text(isPlain ? limit : (limit as Table)[name]);
  const inputs = entries.map((entry) => ({
    entry: { ...entry, isRequired: false },
    input: fieldInput({ ...entry, isRequired: false }, before(entry.name)),
  }));
  if (kind === "quota") inputs.splice(1, 1);
  const unlimited = h("input", { type: "checkbox", name: "unlimited" });
  const until = h("input", { type: "datetime-local", name: "until" });
  unlimited.addEventListener("change", () => {
    for (const { input } of inputs) input.disabled = unlimited.checked;
  });
  const change = (): Record<string, Json> => {
    if (unlimited.checked) return { unlimited: true };
    const fields: Record<string, Json> = {};
    for (const { entry, input } of inputs) {
      const value = parseField(entry, input.value);
      if (value !== null && input.value.trim() !== before(entry.name)) fields[entry.name] = value;
    }
    if (Object.keys(fields).length === 0) throw new Error("Change a number, or choose no limit.");
    return fields;
  };
  openDialog({
    title: `Override ${visible(rule.domain, 60)}/${visible(rule.name, 60)}`,
    body: [
      h("p", {}, "For this key alone: ", keyChips(key)),
      h(
        "div",
        { class: "fields" },
        inputs.map(({ entry, input }) => field(entry.label, input, entry.hint)),
      ),
      h("label", { class: "check" }, unlimited, " No limit"),
      field("Until", until, "empty: until it is removed"),
    ],
    action: "Set the override",
    act: async () => {
      const end = until.value ? { until: new Date(until.value).toISOString() } : {};
      const body = {
        domain: rule.domain,
        rule: rule.name,
        key: exactMatch(key),
        ...change(),
        ...end,
      };
      await request("overrides", { method: "PUT", body });
      context.say("The override is in force.");
      context.reload();
    },
  });
}

export function banTable(context: Context, bans: readonly Ban[]): HTMLElement {
  return table({
    caption: "Bans in force",
    rows: bans,
    empty: "None.",
    step: 20,
    columns: [
      { head: "Domain", cell: (ban) => foreign(ban.domain, "name") },
      { head: "Denies", cell: (ban) => matchChips(ban.match) },
      { head: "Until", cell: (ban) => (ban.until ? timeOf(ban.until) : "no end") },
      { head: "Reason", cell: (ban) => foreign(ban.reason ?? "", "wrap") },
      {
        head: "Action",
        cell: (ban) =>
          context.session.may_change && button("Unban", () => unban(context, ban), "small"),
      },
    ],
  });
}

export function unban(context: Context, { domain, match }: Ban): void {
  openDialog({
    title: "Remove the ban",
    body: h("p", {}, "Requests are decided by the rules again: ", matchChips(match)),
    action: "Unban",
    act: async () => {
      await request("bans", { method: "DELETE", body: { domain, match } });
      context.say("The ban is removed.");
      context.reload();
    },
  });
}

const BAN_TIMES = ["10m", "1h", "24h", "168h", ""];
const BAN_LABELS = ["10 minutes", "1 hour", "1 day", "7 days", "until it is removed"];

/** A dialog that denies all requests with some of these attributes. */
export function ban(context: Context, domain: string, attributes: Record<string, string>): void {
  const boxes = Object.entries(attributes).map(([name, value]) => {
    const box = h("input", { type: "checkbox", name });
    box.checked = Object.keys(attributes).length === 1;
    return { name, value, box };
  });
  const time = h(
    "select",
    { name: "for" },
    BAN_TIMES.map((value, index) => h("option", { value }, BAN_LABELS[index])),
  );
  time.value = "1h";
  const reason = h("input", { type: "text", name: "reason", autocomplete: "off", maxlength: 500 });
  openDialog({
    title: "Ban",
    body: [
      h(
        "p",
        {},
        "All requests of domain ",
        foreign(domain, "name"),
        " with these attributes are denied:",
      ),
      h(
        "div",
        { class: "checks" },
        boxes.map(({ name, value, box }) =>
          h("label", { class: "check" }, box, keyChips({ [name]: value })),
        ),
      ),
      h("div", { class: "fields" }, field("For", time), field("Reason", reason, "clients get it")),
    ],
    action: "Ban",
    isDanger: true,
    act: async () => {
      const chosen = boxes.filter(({ box }) => box.checked);
      if (chosen.length === 0) throw new Error("Choose at least one attribute.");
      const match = exactMatch(Object.fromEntries(chosen.map(({ name, value }) => [name, value])));
      await request("bans", {
        method: "POST",
        body: {
          domain,
          match,
          ...(time.value ? { for: time.value } : {}),
          ...(reason.value ? { reason: reason.value } : {}),
        },
      });
      context.say("The ban is in force.");
      context.reload();
    },
  });
}
