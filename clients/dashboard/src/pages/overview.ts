// The daemon at a glance.

import { chartStart, createChart } from "../chart.ts";
import { button, fill, h, setText } from "../dom.ts";
import { compact, micros, percent, rate } from "../format.ts";
import { createCards, type View } from "../overview_cards.ts";
import type { Context, Page } from "../page.ts";
import { foreign, notice } from "../parts.ts";
import type { Overview } from "../types.ts";

const RANGES: readonly (readonly [string, number])[] = [
  ["2 min", 120],
  ["5 min", 300],
  ["15 min", 900],
];

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
    const since = chartStart(live.time, rangeSeconds);
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
  const isDegraded = now.degraded.length > 0;
  const text = [...now.degraded, ...now.problems].join("\n");
  if (target.dataset["text"] === text) return;
  target.dataset["text"] = text;
  fill(
    target,
    text !== "" &&
      notice(
        isDegraded ? "error" : "warning",
        h("strong", {}, isDegraded ? "Degraded: on_error decides" : "Reported by the daemon"),
        h(
          "ul",
          {},
          now.problems.slice(0, 20).map((problem) => h("li", {}, foreign(problem, "wrap"))),
        ),
      ),
  );
}
