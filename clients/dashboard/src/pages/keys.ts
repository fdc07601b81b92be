// Keys: explain a request, see what it used, change what it may.

import { get } from "../api.ts";
import { button, fill, field, h, type Child } from "../dom.ts";
import { count, visible } from "../format.ts";
import { attributesOf } from "../limits.ts";
import { banTable } from "../bans.ts";
import { overrideTable } from "../overrides.ts";
import { go, type Context, type Page } from "../page.ts";
import { card, keyChips, keyPath, loadInto, ruleLink } from "../parts.ts";
import { table } from "../table.ts";
import type { Ban, Key, OverrideEntry, Rule, TopKey } from "../types.ts";
import { keyDetail } from "./key_detail.ts";

const TOP = 100;

export function keys(context: Context): Page {
  const { path, query, signal } = context;
  const [domain] = path;
  const attributes = Object.fromEntries(query.entries());
  const form = h("div");
  const detail = h("div");
  void loadInto(form, signal, async () => {
    const { rules } = await get<{ rules: Rule[] }>("rules", signal);
    if (domain !== undefined) void keyDetail(context, detail, { domain, attributes, rules });
    return requestForm(rules, domain, attributes);
  });
  if (domain !== undefined) {
    const back = h("p", {}, h("a", { href: "#/keys" }, "← All keys"));
    return { title: "Key", element: h("div", {}, back, card("Request", form), detail) };
  }
  const lists = h("div");
  void loadInto(lists, signal, () => keyLists(context));
  return { title: "Keys", element: h("div", {}, card("Explain a request", form), lists) };
}

/** A form with an input for every attribute that the domain's rules read. */
function requestForm(
  rules: readonly Rule[],
  domain: string | undefined,
  attributes: Record<string, string>,
): HTMLElement {
  const domains = [...new Set([...rules.map((rule) => rule.domain), ...(domain ? [domain] : [])])];
  const select = h(
    "select",
    { name: "domain" },
    domains.map((name) => h("option", { value: name }, visible(name, 60))),
  );
  select.value = domain ?? domains[0] ?? "default";
  const inputs = h("div", { class: "fields" });
  const domainField = field("Domain", select);
  let read: [() => string, () => string][] = [];
  const addInput = (name: string, value: string): void => {
    const input = h("input", { type: "text", name, autocomplete: "off", spellcheck: "false" });
    input.value = value;
    read.push([() => name, () => input.value]);
    inputs.append(field(visible(name, 60), input));
  };
  const addOther = (): void => {
    const name = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
    const value = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
    read.push([() => name.value.trim(), () => value.value]);
    inputs.append(field("Other attribute", name), field("Its value", value));
    name.focus();
  };
  const show = (): void => {
    read = [];
    fill(inputs, domainField);
    const names = attributesOf(rules, select.value);
    const given = Object.keys(attributes).filter((name) => !names.includes(name));
    for (const name of [...names, ...given]) addInput(name, attributes[name] ?? "");
  };
  select.addEventListener("change", show);
  show();
  const submit = (): void => {
    const chosen: Key = {};
    for (const [name, value] of read) if (name() !== "" && value() !== "") chosen[name()] = value();
    const next = keyPath(select.value, chosen);
    if (location.hash === next) window.dispatchEvent(new HashChangeEvent("hashchange"));
    else go(next);
  };
  return h(
    "form",
    {
      on: {
        submit: (event) => {
          event.preventDefault();
          submit();
        },
      },
    },
    inputs,
    h(
      "div",
      { class: "actions" },
      h("button", { type: "submit", class: "button primary" }, "Explain"),
      button("Add an attribute", addOther),
    ),
  );
}

async function keyLists(context: Context): Promise<Child> {
  const { signal } = context;
  const [top, bans, overrides] = await Promise.all([
    get<{ busiest: TopKey[]; most_denied: TopKey[] }>(`top?count=${TOP}`, signal),
    get<{ bans: Ban[] }>("bans", signal),
    get<{ overrides: OverrideEntry[] }>("overrides", signal),
  ]);
  return [
    h(
      "div",
      { class: "two" },
      card("Busiest keys", topTable("Busiest keys", top.busiest)),
      card("Most denied keys", topTable("Most denied keys", top.most_denied)),
    ),
    card("Bans", banTable(context, bans.bans)),
    card("Overrides", overrideTable(context, overrides.overrides)),
  ];
}

function topTable(caption: string, keys: readonly TopKey[]): HTMLElement {
  return table({
    caption,
    rows: keys,
    empty: "None yet.",
    step: 15,
    columns: [
      {
        head: "Key",
        cell: ({ domain, key }) => {
          const attributes = Object.fromEntries(key);
          return h("a", { href: keyPath(domain, attributes) }, keyChips(attributes));
        },
      },
      { head: "Rule", cell: ({ domain, rule }) => ruleLink(domain, rule) },
      {
        head: "Count",
        class: "num",
        cell: ({ count: n, error }) =>
          h(
            "span",
            { title: error > 0 ? `at most ${count(error)} too high` : undefined },
            (error > 0 ? "≤ " : "") + count(n),
          ),
      },
    ],
  });
}
