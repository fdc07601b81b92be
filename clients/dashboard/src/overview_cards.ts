// The cards of the overview: rules, keys, store, nodes, connections, the daemon.

import { get, isAbort } from "./api.ts";
import { fill, h, type Child } from "./dom.ts";
import { bytes, count, duration, percent, rate } from "./format.ts";
import type { Context } from "./page.ts";
import { badge, card, facts, foreign, notice, ruleLink, usageBar } from "./parts.ts";
import { storeFacts } from "./store_facts.ts";
import type { Overview, Status } from "./types.ts";

const BUSIEST_RULES = 8;

/** A part of the overview, which every event updates. */
export interface View {
  readonly element: HTMLElement;
  show(overview: Overview): void;
}

export function createCards({ live, signal }: Context): View {
  const store = h("div");
  const size = h("div");
  const connections = h("div");
  const daemon = h("div", {}, h("p", { class: "muted" }, "Loading…"));
  const busiest = h("div");
  const nodes = h("div");
  const nodesCard = card("Nodes", nodes);
  nodesCard.hidden = true;
  const element = h(
    "div",
    { class: "cards" },
    card("Busiest rules", busiest),
    card("Keys and memory", size),
    card("Store", store),
    nodesCard,
    card("Connections", connections),
    card("Daemon", daemon),
  );
  void showDaemon(daemon, signal);
  return {
    element,
    show(now) {
      refill(store, JSON.stringify(now.store), () => storeFacts(now.store));
      refill(size, JSON.stringify([now.keys, now.bytes, now.resident_bytes]), () => sizeFacts(now));
      refill(connections, JSON.stringify(now.connections), () =>
        facts(
          Object.entries(now.connections).map(([name, n]) => [
            name,
            h("span", { class: "num" }, count(n)),
          ]),
        ),
      );
      refill(busiest, String(now.time_ms), () => busiestRules(live));
      nodesCard.hidden = now.nodes === null;
      refill(nodes, JSON.stringify(now.nodes), () => nodeList(now));
    },
  };
}

/** Replaces the content only if what it shows has changed and nothing in it has the focus. */
function refill(target: HTMLElement, version: string, make: () => Child): void {
  if (target.dataset["version"] === version || target.contains(document.activeElement)) return;
  target.dataset["version"] = version;
  fill(target, make());
}

function sizeFacts(now: Overview): Child {
  return [
    usageBar(now.max_keys === 0 ? null : now.keys / now.max_keys),
    facts([
      ["keys", h("span", { class: "num" }, `${count(now.keys)} of ${count(now.max_keys)}`)],
      ["table", h("span", { class: "num" }, bytes(now.bytes))],
      ["process", h("span", { class: "num" }, bytes(now.resident_bytes))],
    ]),
  ];
}

function nodeList(now: Overview): Child {
  const nodes = now.nodes ?? [];
  return h(
    "ul",
    { class: "nodes" },
    nodes
      .slice(0, 50)
      .map((node) =>
        h(
          "li",
          {},
          foreign(node.name, "name"),
          node.self && badge("this one", "enforce"),
          h(
            "span",
            { class: "muted num" },
            `${node.version}, seen ${duration(node.seen_ms_ago)} ago`,
          ),
        ),
      ),
    nodes.length > 50 && h("li", { class: "muted" }, `and ${nodes.length - 50} more`),
  );
}

function busiestRules(live: Context["live"]): Child {
  const rules = live.rules.busiest(BUSIEST_RULES);
  if (rules.length === 0)
    return h("p", { class: "empty" }, "No decisions in the last ten seconds.");
  const row = ({ domain, name, counts }: (typeof rules)[number]): HTMLElement => {
    const all = counts.allowed + counts.denied + counts.shadow_denied;
    const share = percent((counts.denied + counts.shadow_denied) / all);
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, ruleLink(domain, name)),
      h("td", { class: "num" }, rate(all)),
      h("td", { class: "num" }, share),
    );
  };
  const heads = ["rule", "per s", "denied"].map((name) => h("th", { scope: "col" }, name));
  return h(
    "table",
    { class: "busiest" },
    h("thead", {}, h("tr", {}, heads)),
    h("tbody", {}, rules.map(row)),
  );
}

async function showDaemon(target: HTMLElement, signal: AbortSignal): Promise<void> {
  try {
    const status = await get<Status>("status", signal);
    const listeners = Object.entries(status.listeners).filter(([, address]) => address !== null);
    fill(
      target,
      facts([
        ["version", status.version],
        ["up", duration(status.uptime_ms)],
        ["rules", `${count(status.rules)}, ${count(status.shadow_rules)} in shadow mode`],
        ["enforced", percent(status.enforce_ppm / 1_000_000)],
        ["edits", status.edits ? h("a", { href: "#/policy" }, "there are edits") : "none"],
        ["reloads", `${count(status.reload.ok)} ok, ${count(status.reload.failed)} failed`],
        [
          "listeners",
          listeners.map(([name, address]) =>
            h("div", {}, `${name} `, foreign(address ?? "", "code")),
          ),
        ],
      ]),
      status.reload.needs_restart.length > 0 &&
        notice("warning", `Needs a restart: ${status.reload.needs_restart.join(", ")}`),
    );
  } catch (error) {
    if (!isAbort(error)) fill(target, h("p", { class: "muted" }, "not known"));
  }
}
