// The keys of one request: the decision now, usage, denials, and changes.

import { get, post, query, request } from "../api.ts";
import { openDialog } from "../dialog.ts";
import { button, fill, h, type Child } from "../dom.ts";
import { denialTable } from "../denial_table.ts";
import { explanationBody } from "../explanation.ts";
import { plural, visible } from "../format.ts";
import { ban, banTable } from "../bans.ts";
import { overrideTable, setOverride } from "../overrides.ts";
import type { Context } from "../page.ts";
import { card, keyChips, loadInto, mayNotChange } from "../parts.ts";
import type {
  Ban,
  Denial,
  Denials,
  ExplainedRule,
  Explanation,
  Key,
  Matches,
  OverrideEntry,
  Rule,
  RuleUsage,
} from "../types.ts";

interface Request {
  readonly domain: string;
  readonly attributes: Record<string, string>;
  readonly rules: readonly Rule[];
}

/** Denials, and rules, that are searched for those of a key. */
const DENIALS_SEARCHED = 200;
const RULES_SEARCHED = 10;
/** Characters of a name that the search is for. */
const TEXT_MAX = 100;

export async function keyDetail(context: Context, target: HTMLElement, it: Request): Promise<void> {
  const { signal } = context;
  const { domain, attributes } = it;
  await loadInto(target, signal, async () => {
    const [explanation, usage, bans, overrides] = await Promise.all([
      post<Explanation>("explain", { domain, attributes }, signal),
      post<{ rules: RuleUsage[] }>("usage", { domain, attributes }, signal),
      get<{ bans: Ban[] }>("bans", signal),
      get<{ overrides: OverrideEntry[] }>("overrides", signal),
    ]);
    const applied = explanation.rules.filter((rule) => rule.applies);
    const ownBans = bans.bans.filter(
      (ban) => ban.domain === domain && concerns(ban.match, attributes),
    );
    const ownOverrides = overrides.overrides.filter(
      (entry) =>
        entry.domain === domain &&
        applied.some((rule) => rule.rule === entry.rule && concerns(entry.key, rule.key ?? {})),
    );
    const denied = h("div");
    void loadInto(denied, signal, () => deniedRequests(context, it, applied));
    return [
      card("Now", explanationBody(explanation, usage.rules)),
      context.session.may_change
        ? card("Change", changes(context, it, applied))
        : card("Change", mayNotChange()),
      ownBans.length > 0 && card("Bans of these attributes", banTable(context, ownBans)),
      ownOverrides.length > 0 &&
        card("Overrides of these keys", overrideTable(context, ownOverrides)),
      card("Recent denials", denied),
    ];
  });
}

/** Whether patterns that name one value each name these values. */
function concerns(match: Matches, key: Key): boolean {
  return Object.entries(match).every(([name, pattern]) => {
    const value = key[name];
    if (value === null || value === undefined) return false;
    const whole = value.replace(/\/(32|128)$/, "");
    const patterns = Array.isArray(pattern) ? pattern : [pattern];
    return patterns.some((text) => [value, `=${value}`, whole].includes(String(text)));
  });
}

/** The denials of the keys of this request, and those of bans of these attributes. */
async function deniedRequests(
  context: Context,
  it: Request,
  applied: readonly ExplainedRule[],
): Promise<Child> {
  const { domain, attributes } = it;
  const longest = (values: readonly string[]): string =>
    values.reduce((best, value) => (value.length > best.length ? value : best), "");
  const search = async (rule: string | null, names: readonly string[]): Promise<Denial[]> => {
    const text = longest(names.map((name) => attributes[name] ?? "")).slice(0, TEXT_MAX);
    const path = `denials${query({ domain, rule, text, limit: DENIALS_SEARCHED })}`;
    return (await get<Denials>(path, context.signal)).denials;
  };
  const found = await Promise.all([
    ...applied.slice(0, RULES_SEARCHED).map(async ({ rule, key = {} }) => {
      const denials = await search(rule, Object.keys(key));
      return denials.filter((denial) => isSame(denial.key ?? {}, key));
    }),
    search(null, Object.keys(attributes)).then((denials) =>
      denials.filter((denial) => denial.rule === null && isSame(denial.attributes, attributes)),
    ),
  ]);
  const byId = new Map(found.flat().map((denial) => [denial.decision_id, denial]));
  const newest = [...byId.values()].sort((a, b) => b.time.localeCompare(a.time));
  return denialTable(newest, "None of these keys is kept.");
}

function isSame(one: Key, other: Key): boolean {
  const names = Object.keys(one);
  return (
    names.length === Object.keys(other).length && names.every((name) => one[name] === other[name])
  );
}

function changes(context: Context, it: Request, applied: readonly ExplainedRule[]): Child {
  const { domain, attributes } = it;
  const overridable = applied.filter(({ key }) => {
    const values = Object.values(key ?? {});
    return values.length > 0 && values.every((value) => value !== null);
  });
  const overrideButtons = overridable.slice(0, 20).map(({ rule, key }) => {
    const found = it.rules.find((other) => other.domain === domain && other.name === rule);
    return (
      found &&
      button(`Override ${visible(rule, 40)}…`, () =>
        setOverride(context, found, overrideKey(key ?? {}, attributes)),
      )
    );
  });
  return h(
    "div",
    { class: "actions" },
    overrideButtons,
    Object.keys(attributes).length > 0 &&
      button("Ban…", () => ban(context, domain, attributes), "danger"),
    button("Reset…", () => reset(context, domain, attributes, applied), "danger"),
  );
}

/** The key as an override names it: a whole address without its length. */
function overrideKey(key: Key, attributes: Record<string, string>): Key {
  const entries = Object.entries(key).map(([name, value]): [string, string | null] => {
    const isWhole = value === `${attributes[name]}/32`;
    return [name, isWhole ? (attributes[name] ?? null) : value];
  });
  return Object.fromEntries(entries);
}

function reset(
  context: Context,
  domain: string,
  attributes: Record<string, string>,
  applied: readonly ExplainedRule[],
): void {
  const result = h("div");
  openDialog({
    title: "Reset the keys of this request",
    body: [
      h("p", {}, "What these keys have used is forgotten; they start fresh:"),
      h(
        "ul",
        { class: "lines" },
        applied.map(({ rule, key }) => h("li", {}, visible(rule, 60), " ", keyChips(key ?? {}))),
      ),
      result,
    ],
    action: "Reset",
    isDanger: true,
    act: async () => {
      const done = await request<{ reset: boolean; keys?: number }>("keys/reset", {
        method: "POST",
        body: { domain, attributes },
      });
      fill(result);
      const what =
        done.keys === undefined ? "The keys are reset." : `${plural(done.keys, "key")} reset.`;
      context.say(done.reset ? what : "There was no state to reset.");
      context.reload();
    },
  });
}
