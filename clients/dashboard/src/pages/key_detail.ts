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

/** Denials that are searched for those of a key. */
const DENIALS_SEARCHED = 500;

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
    void loadInto(denied, signal, () => deniedRequests(context, it));
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

async function deniedRequests(context: Context, it: Request): Promise<Child> {
  const values = Object.values(it.attributes);
  const longest = values.reduce((best, value) => (value.length > best.length ? value : best), "");
  const found = await get<Denials>(
    `denials${query({ domain: it.domain, text: longest.slice(0, 200), limit: DENIALS_SEARCHED })}`,
    context.signal,
  );
  const has = (denial: Denial, name: string, value: string): boolean =>
    denial.attributes[name] === value || denial.key?.[name] === value;
  const own = found.denials.filter((denial) =>
    Object.entries(it.attributes).every(([name, value]) => has(denial, name, value)),
  );
  return denialTable(own, "None of these keys is kept.");
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
