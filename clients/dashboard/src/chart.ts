// A chart over time, with a table of its figures as legend and text alternative.

import uPlot from "uplot";
import { fill, h, setText } from "./dom.ts";
import { color, onTheme } from "./theme.ts";

export interface ChartSeries {
  readonly label: string;
  /** A colour of the style sheet. */
  readonly color: string;
  readonly dash?: number[];
  readonly isFilled?: boolean;
}

export interface ChartOptions {
  readonly title: string;
  readonly series: readonly ChartSeries[];
  readonly format: (value: number) => string;
  readonly height?: number;
  readonly signal: AbortSignal;
}

type Values = readonly (number | null | undefined)[];

export interface Chart {
  readonly element: HTMLElement;
  /** Draws `time` (Unix seconds) and one array per series, from `since` on. */
  draw(time: readonly number[], series: readonly Values[], since: number): void;
}

const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

/** Seconds that a chart shows at least. */
const SECONDS_MIN = 120;

/** Where a chart of the last `seconds` begins: later, if there are no points yet. */
export function chartStart(time: readonly number[], seconds: number): number {
  const now = time.at(-1) ?? Date.now() / 1000;
  return Math.max(now - seconds, Math.min(time[0] ?? now, now - SECONDS_MIN));
}

export function createChart(options: ChartOptions): Chart {
  const { title, series, format, signal } = options;
  const plot = h("div", { class: "plot", role: "img" });
  const legend = new Legend(series, format);
  const element = h("figure", { class: "chart" }, h("figcaption", {}, title), plot, legend.element);
  let chart: uPlot | null = null;
  let data: uPlot.AlignedData = [[], ...series.map(() => [])] as uPlot.AlignedData;
  let since = 0;

  const height = options.height ?? 190;
  const create = (): void => {
    chart?.destroy();
    const width = plot.clientWidth;
    if (width === 0) return;
    const range = (_: uPlot, min: number | null, max: number | null): uPlot.Range.MinMax => [
      since || (min ?? 0),
      Math.max(max ?? 0, since + 1),
    ];
    chart = new uPlot(settings(options, width, height, range, legend), data, plot);
  };
  const observer = new ResizeObserver(() => {
    if (!chart) create();
    else if (chart.width !== plot.clientWidth) chart.setSize({ width: plot.clientWidth, height });
  });
  observer.observe(plot);
  onTheme(create, signal);
  signal.addEventListener("abort", () => {
    observer.disconnect();
    chart?.destroy();
  });

  return {
    element,
    draw(time, values, from) {
      const first = time.findIndex((at) => at >= from);
      const start = first < 0 ? time.length : first;
      since = from;
      data = [time.slice(start), ...values.map((v) => v.slice(start))] as uPlot.AlignedData;
      chart?.setData(data);
      legend.show(data);
      const label = `Chart of ${title.toLowerCase()}: ${legend.summary()}. The table below has the figures.`;
      if (plot.getAttribute("aria-label") !== label) plot.setAttribute("aria-label", label);
    },
  };
}

/** A time of the axis: seconds only where they are not zero. */
function clock(seconds: number): string {
  const text = new Date(seconds * 1000).toLocaleTimeString("en-GB");
  return text.endsWith(":00") ? text.slice(0, 5) : text;
}

function settings(
  options: ChartOptions,
  width: number,
  height: number,
  range: uPlot.Scale.Range,
  legend: Legend,
): uPlot.Options {
  const axis = { stroke: color("muted"), font: FONT, ticks: { show: false } };
  const grid = { stroke: color("grid"), width: 1 };
  return {
    width,
    height,
    padding: [8, 24, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { setScale: false, x: false, y: false }, points: { size: 6 } },
    scales: {
      x: { range },
      y: { range: (_, __, max) => [0, Math.max((max ?? 0) * 1.1, 1)] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        space: 64,
        size: 26,
        values: (_, splits) => splits.map(clock),
      },
      {
        ...axis,
        grid,
        size: 58,
        space: 34,
        values: (_, splits) => splits.map((value) => options.format(value)),
      },
    ],
    series: [
      {},
      ...options.series.map((line) => ({
        label: line.label,
        stroke: color(line.color),
        width: 1.5,
        points: { show: false },
        ...(line.dash ? { dash: line.dash } : {}),
        ...(line.isFilled ? { fill: color(`${line.color}-fill`) } : {}),
      })),
    ],
    hooks: { setCursor: [(chart) => legend.pointAt(chart.cursor.idx ?? null)] },
  };
}

/** The figures of each series: now or under the pointer, mean and maximum. */
class Legend {
  readonly element: HTMLElement;
  readonly #rows: HTMLElement[][];
  readonly #head = h("th", { scope: "col" }, "now");
  readonly #series: readonly ChartSeries[];
  readonly #format: (value: number) => string;
  #data: uPlot.AlignedData | null = null;
  #index: number | null = null;

  constructor(series: readonly ChartSeries[], format: (value: number) => string) {
    this.#series = series;
    this.#format = format;
    this.#rows = series.map(() => [h("td"), h("td"), h("td")]);
    const heads = ["mean", "max"].map((name) => h("th", { scope: "col" }, name));
    const rows = series.map((line, index) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, h("span", { class: `swatch ${line.color}` }), line.label),
        this.#rows[index] ?? [],
      ),
    );
    this.element = h("table", { class: "legend" });
    const corner = h("th", { scope: "col" }, h("span", { class: "sr-only" }, "series"));
    fill(
      this.element,
      h("thead", {}, h("tr", {}, corner, this.#head, heads)),
      h("tbody", {}, rows),
    );
  }

  show(data: uPlot.AlignedData): void {
    this.#data = data;
    this.#render();
  }

  pointAt(index: number | null): void {
    this.#index = index;
    this.#render();
  }

  summary(): string {
    return this.#series
      .map((line, index) => `${line.label} at most ${this.#rows[index]?.[2]?.textContent ?? "–"}`)
      .join(", ");
  }

  #render(): void {
    const data = this.#data;
    if (!data) return;
    const at = this.#index === null ? undefined : data[0][this.#index];
    setText(this.#head, at === undefined ? "now" : new Date(at * 1000).toLocaleTimeString("en-GB"));
    this.#rows.forEach((cells, row) => {
      const values = data[row + 1] ?? [];
      const known = Array.from(values).filter(
        (value): value is number => typeof value === "number",
      );
      const point = at === undefined ? values[values.length - 1] : values[this.#index ?? 0];
      const figures = [
        point,
        known.length > 0 ? known.reduce((sum, value) => sum + value, 0) / known.length : null,
        known.length > 0 ? known.reduce((max, value) => Math.max(max, value), 0) : null,
      ];
      cells.forEach((cell, index) => {
        const value = figures[index];
        setText(cell, value === null || value === undefined ? "–" : this.#format(value));
      });
    });
  }
}
