// The limits of rules and their fields, as a policy file has them.

import type { Json, Rule, Table } from "./types.ts";

export interface LimitField {
  readonly name: string;
  readonly label: string;
  readonly kind: "integer" | "text" | "mixed" | readonly string[];
  readonly isRequired?: boolean;
  readonly hint?: string;
}

const MAX: LimitField = { name: "max", label: "Max", kind: "integer", isRequired: true };
const PER: LimitField = {
  name: "per",
  label: "Per",
  kind: "text",
  isRequired: true,
  hint: "such as 1m or 1h30m",
};

/** The fields of each limit; a cooldown is a single text. */
export const LIMITS: Record<string, readonly LimitField[]> = {
  bucket: [
    { name: "rate", label: "Rate", kind: "text", isRequired: true, hint: "such as 10/s or 100/m" },
    { name: "burst", label: "Burst", kind: "integer", hint: "empty: the count of the rate" },
    { name: "debt", label: "Debt", kind: "integer", hint: "empty: none" },
  ],
  window: [MAX, PER, { name: "align", label: "Align", kind: ["", "epoch"] }],
  sliding: [MAX, PER, { name: "parts", label: "Parts", kind: "integer", hint: "empty: 10" }],
  cooldown: [],
  quota: [
    MAX,
    { ...PER, hint: "day, month in Europe/Helsinki, round" },
    { name: "carry", label: "Carry", kind: "mixed", hint: "a number, all or none" },
    { name: "debt", label: "Debt", kind: "mixed", hint: "a number, all or none" },
  ],
  slots: [
    MAX,
    { name: "queue", label: "Queue", kind: "integer", hint: "empty: 1024" },
    { name: "wait", label: "Wait", kind: "text", hint: "empty: no deadline" },
    { name: "expires", label: "Expires", kind: "text", hint: "empty: 10m" },
    { name: "priority", label: "Priority", kind: "text", hint: "an attribute" },
  ],
};

/** Fields that the form has inputs for. */
export const FORM_FIELDS = new Set([...Object.keys(LIMITS), "mode", "deny"]);

export function limitKind(rule: Table): string {
  return Object.keys(LIMITS).find((name) => name in rule) ?? "";
}

export const isTable = (value: unknown): value is Table =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The limit in a few words. */
export function shortLimit(rule: Table): string {
  const kind = limitKind(rule);
  const limit = rule[kind];
  if (typeof limit === "string") return `one every ${limit}`;
  if (!isTable(limit)) return "";
  if (kind === "bucket")
    return `${text(limit["rate"])}, burst ${text(limit["burst"]) || "as rate"}`;
  if (kind === "slots") return `${text(limit["max"])} at once`;
  const per = text(limit["per"]);
  return `${text(limit["max"])} per ${per}${kind === "sliding" ? ", sliding" : ""}`;
}

/** A field as its input shows it. */
export const text = (value: Json | undefined): string =>
  value === undefined || value === null
    ? ""
    : typeof value === "object"
      ? JSON.stringify(value)
      : String(value);

/** What an input means; an empty one is null, which removes the field. */
export function parseField(field: LimitField, input: string): Json {
  const value = input.trim();
  if (value === "") return null;
  const isInteger = /^\d[\d_]*$/.test(value);
  if (field.kind === "integer" || (field.kind === "mixed" && isInteger)) {
    const number = Number(value.replaceAll("_", ""));
    if (!isInteger) throw new Error(`${field.label} must be a whole number.`);
    if (!Number.isSafeInteger(number)) {
      throw new Error(`${field.label} is too large for this form; change it on the page Policy.`);
    }
    return number;
  }
  return value;
}

/** The attributes that rules of a domain read, those of keys first. */
export function attributesOf(rules: readonly Rule[], domain: string): string[] {
  const ofKeys = new Set<string>();
  const ofMatches = new Set<string>();
  for (const { rule, domain: other } of rules) {
    if (other !== domain) continue;
    if (Array.isArray(rule["key"]))
      for (const name of rule["key"]) ofKeys.add(attribute(String(name)));
    if (isTable(rule["match"])) for (const name of Object.keys(rule["match"])) ofMatches.add(name);
  }
  return [...new Set([...ofKeys, ...ofMatches])].slice(0, 64);
}

/** The attribute of a part of a key; addresses may have a length: `ip/56`, `ip4/24`. */
function attribute(part: string): string {
  return /^ip[46]?(\/|$)/.test(part) ? "ip" : part;
}
