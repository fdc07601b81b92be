// The daemon at a glance.

import { get, isAbort } from "../api.ts";
import { createChart } from "../chart.ts";
import { button, fill, h, setText, type Child } from "../dom.ts";
import { bytes, compact, count, duration, micros, percent, rate } from "../format.ts";
import type { Context, Page } from "../page.ts";
import { badge, card, facts, foreign, notice, ruleLink, usageBar } from "../parts.ts";
import { storeFacts } from "../store_facts.ts";
import type { Overview, Status } from "../types.ts";

const RANGES: readonly (readonly [string, number])[] = [
  ["2 min", 120],
  ["5 min", 300],
  ["15 min", 900],
];
const BUSIEST_RULES = 8;

let rangeSeconds = 300;

export function overview(context: Context): Page {
  const { live, signal } = context;
  const problems = h("div", { "aria-live": "polite" });
  const tiles = createTiles();
  const decisions = createChart({
    title: "Decisions per second",
    signal,
    format: rate,
    series: [
      { label: "allowed", color: "allowed", isFilled: true },
      { label: "denied", color: "denied", isFilled: true },
      { label: "shadow denied", color: "shadow", dash: [5, 3] },
    ],
  });
  const latency = createChart({
    title: "Time to decide",
    signal,
    format: micros,
    series: [
      { label: "p50", color: "allowed" },
      { label: "p99", color: "late", dash: [5, 3] },
    ],
  });
  const drawCharts = (): void => {
    const now = live.time.at(-1) ?? Date.now() / 1000;
    const since = now - rangeSeconds;
    decisions.draw(live.time, [live.allowed, live.denied, live.shadow], since);
    latency.draw(live.time, [live.p50, live.p99], since);
  };
  const cards = createCards(context);
  const update = (): void => {
    drawCharts();
    if (!live.last) return;
    tiles.show(live.last);
    cards.show(live.last);
    showProblems(problems, live.last);
  };
  live.subscribe(update, signal);
  const element = h(
    "div",
    { class: "overview" },
    problems,
    tiles.element,
    rangePicker(drawCharts),
    h("div", { class: "charts" }, decisions.element, latency.element),
    cards.element,
  );
  update();
  return { title: "Overview", element };
}

function rangePicker(changed: () => void): HTMLElement {
  const buttons = RANGES.map(([label, seconds]) =>
    button(label, () => {
      rangeSeconds = seconds;
      mark();
      changed();
    }),
  );
  const mark = (): void =>
    buttons.forEach((it, index) =>
      it.setAttribute("aria-pressed", String(RANGES[index]?.[1] === rangeSeconds)),
    );
  mark();
  return h(
    "div",
    { class: "segments", role: "group", "aria-label": "Time that charts show" },
    buttons,
  );
}

interface View {
  readonly element: HTMLElement;
  show(overview: Overview): void;
}

function createTiles(): View {
  const names = ["Allowed", "Denied", "Share denied", "Shadow denied", "p99", "Keys"] as const;
  const values = names.map(() => h("div", { class: "tile-value" }, "–"));
  const classes = ["allowed", "denied", "denied", "shadow", "late", ""];
  const element = h(
    "div",
    { class: "tiles" },
    names.map((name, index) =>
      h(
        "div",
        { class: `tile ${classes[index]}` },
        h("div", { class: "tile-name" }, name),
        values[index],
      ),
    ),
  );
  return {
    element,
    show(now) {
      const perSecond = 1000 / now.step_ms;
      const all = now.allowed + now.denied;
      const texts = [
        `${rate(now.allowed * perSecond)}/s`,
        `${rate(now.denied * perSecond)}/s`,
        percent(all === 0 ? null : now.denied / all),
        `${rate(now.shadow_denied * perSecond)}/s`,
        micros(now.p99_us),
        compact(now.keys),
      ];
      values.forEach((value, index) => setText(value, texts[index] ?? "–"));
    },
  };
}

function showProblems(target: HTMLElement, now: Overview): void {
  const text = now.ready ? now.problems.join("\n") : ["not ready", ...now.problems].join("\n");
  if (target.dataset["text"] === text) return;
  target.dataset["text"] = text;
  fill(
    target,
    text !== "" &&
      notice(
        now.ready ? "warning" : "error",
        h("strong", {}, now.ready ? "The daemon reports a problem" : "The daemon is not ready"),
        h(
          "ul",
          {},
          now.problems.slice(0, 20).map((problem) => h("li", {}, foreign(problem, "wrap"))),
        ),
      ),
  );
}

function createCards({ live, signal }: Context): View {
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
        ["enforced for", percent(status.enforce_ppm / 1_000_000)],
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
