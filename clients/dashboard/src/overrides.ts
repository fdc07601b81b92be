// Overrides: the list, and dialogs that set and remove them.

import { request } from "./api.ts";
import { openDialog } from "./dialog.ts";
import { button, field, h } from "./dom.ts";
import { visible } from "./format.ts";
import { isTable, LIMITS, limitKind, parseField, text } from "./limits.ts";
import type { Context } from "./page.ts";
import { foreign, keyChips, ruleLink, timeOf } from "./parts.ts";
import { exactMatch, matchChips } from "./patterns.ts";
import { fieldInput } from "./rule_form.ts";
import { table } from "./table.ts";
import type { Json, Key, OverrideEntry, Rule, Table } from "./types.ts";

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
