// The form of a rule: its numbers, mode and text, and a table for the rest.

import { field, h } from "./dom.ts";
import {
  FORM_FIELDS,
  isTable,
  LIMITS,
  limitKind,
  parseField,
  text,
  type LimitField,
} from "./limits.ts";
import type { Json, Rule, Table } from "./types.ts";

export interface RuleForm {
  readonly element: HTMLElement;
  /** The fields that differ from the rule, as PATCH takes them; throws if an input is invalid. */
  change(): Table;
}

type Input = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

export function fieldInput(entry: LimitField, value: string): Input {
  if (typeof entry.kind !== "string") {
    const options = entry.kind.map((name) => h("option", { value: name }, name || "first request"));
    const select = h("select", { name: entry.name }, options);
    select.value = value;
    return select;
  }
  const input = h("input", {
    type: "text",
    name: entry.name,
    inputmode: entry.kind === "integer" ? "numeric" : undefined,
    autocomplete: "off",
    spellcheck: "false",
    required: entry.isRequired,
  });
  input.value = value;
  return input;
}

/** A function for each input, which adds its change to a table. */
type Reader = (change: Table) => void;

function limitInputs(rule: Table): { elements: HTMLElement[]; read: Reader } {
  const kind = limitKind(rule);
  const limit = rule[kind];
  if (!isTable(limit)) {
    const cooldown: LimitField = { name: kind, label: "Cooldown", kind: "text", isRequired: true };
    const input = fieldInput(cooldown, text(limit));
    const read: Reader = (change) => {
      if (input.value.trim() !== text(limit)) change[kind] = input.value.trim();
    };
    return { elements: [field("Cooldown", input, "such as 10s")], read };
  }
  const inputs = (LIMITS[kind] ?? []).map((entry) => ({
    entry,
    before: text(limit[entry.name]),
    input: fieldInput(entry, text(limit[entry.name])),
  }));
  const read: Reader = (change) => {
    const table: Table = {};
    for (const { entry, before, input } of inputs) {
      if (input.value.trim() !== before) table[entry.name] = parseField(entry, input.value);
    }
    if (Object.keys(table).length > 0) change[kind] = table;
  };
  return {
    elements: inputs.map(({ entry, input }) => field(entry.label, input, entry.hint)),
    read,
  };
}

/** The form of a rule. */
export function ruleForm({ rule, mode }: Rule): RuleForm {
  const limit = limitInputs(rule);
  const modeInput = h(
    "select",
    { name: "mode" },
    h("option", { value: "enforce" }, "enforce"),
    h("option", { value: "shadow" }, "shadow"),
  );
  modeInput.value = mode;
  const deny = h("input", { type: "text", name: "deny", autocomplete: "off" });
  deny.value = text(rule["deny"]);
  const other = h("textarea", { name: "other", rows: 4, spellcheck: "false", class: "code" });
  other.placeholder = '{ "missing": "share", "group": null }';
  const element = h(
    "div",
    { class: "rule-form" },
    h("div", { class: "fields" }, limit.elements),
    h(
      "div",
      { class: "fields" },
      field("Mode", modeInput),
      field("Text of denials", deny, "the reason that clients get"),
    ),
    h(
      "details",
      {},
      h("summary", {}, "Other fields"),
      field("Changed fields as JSON", other, "null removes a field"),
    ),
  );
  return {
    element,
    change() {
      const change: Table = {};
      limit.read(change);
      if (modeInput.value !== mode) change["mode"] = modeInput.value;
      if (deny.value !== text(rule["deny"])) change["deny"] = deny.value === "" ? null : deny.value;
      return { ...change, ...otherFields(other.value) };
    },
  };
}

function otherFields(source: string): Table {
  if (source.trim() === "") return {};
  let value: Json;
  try {
    value = JSON.parse(source) as Json;
  } catch (error) {
    throw new Error(
      `The other fields are not JSON: ${error instanceof Error ? error.message : ""}`,
    );
  }
  if (!isTable(value)) throw new Error("The other fields must be a JSON object.");
  const twice = Object.keys(value).find((name) => FORM_FIELDS.has(name));
  if (twice) throw new Error(`“${twice}” has an input of its own above.`);
  return value;
}
