// A small line of what a rule decided, with its denials.

import { svg } from "./dom.ts";
import type { Series } from "./rule_series.ts";

const WIDTH = 96;
const HEIGHT = 22;

export interface Sparkline {
  readonly element: SVGElement;
  draw(series: Series | undefined): void;
}

export function sparkline(): Sparkline {
  const element = svg("svg", {
    class: "spark",
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    width: WIDTH,
    height: HEIGHT,
    "aria-hidden": "true",
  });
  const all = svg("polyline", { class: "spark-all" });
  const denied = svg("polyline", { class: "spark-denied" });
  element.append(all, denied);
  return {
    element,
    draw(series) {
      const allowed = series?.allowed ?? [];
      const refused = allowed.map((_, i) => (series?.denied[i] ?? 0) + (series?.shadow[i] ?? 0));
      const total = allowed.map((value, index) => value + (refused[index] ?? 0));
      const max = total.reduce((most, value) => Math.max(most, value), 1);
      all.setAttribute("points", points(total, max));
      denied.setAttribute("points", refused.some((n) => n > 0) ? points(refused, max) : "");
    },
  };
}

function points(values: readonly number[], max: number): string {
  if (values.length === 0) return `0,${HEIGHT - 1} ${WIDTH},${HEIGHT - 1}`;
  const step = WIDTH / Math.max(1, values.length - 1);
  return values
    .map((value, index) => {
      const y = HEIGHT - 1 - (value / max) * (HEIGHT - 3);
      return `${(index * step).toFixed(1)},${y.toFixed(1)}`;
    })
    .join(" ");
}
