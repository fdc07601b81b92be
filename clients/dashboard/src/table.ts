// Tables that show a part of their rows, and more on demand.

import { button, h, newId, type Child } from "./dom.ts";
import { count } from "./format.ts";

export interface Column<T> {
  readonly head: string;
  readonly class?: string;
  readonly cell: (row: T) => Child;
}

export interface TableOptions<T> {
  readonly caption: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  readonly empty: string;
  readonly step?: number;
  /** Called with every row that is made. */
  readonly made?: (row: T, element: HTMLTableRowElement) => void;
}

/** A table; at most `step` rows more are made with each press of its button. */
export function table<T>(options: TableOptions<T>): HTMLElement {
  const { columns, rows, step = 100 } = options;
  if (rows.length === 0) return h("p", { class: "empty" }, options.empty);
  const body = h("tbody", { role: "rowgroup" });
  const id = newId("table");
  const heads = columns.map(({ head, class: name }) =>
    h("th", { scope: "col", class: name, role: "columnheader" }, head),
  );
  const element = h(
    "table",
    // Narrow screens lay rows out as blocks, which takes the roles of a table away.
    { class: "table", id, role: "table" },
    h("caption", { class: "sr-only" }, options.caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)),
    body,
  );
  let shown = 0;
  const more = button("", () => show(), "more");
  const show = (): void => {
    for (const row of rows.slice(shown, shown + step)) {
      const cells = columns.map(({ head, class: name, cell }) =>
        h(
          "td",
          { class: name, "data-head": head, role: "cell" },
          h("div", { class: "cell" }, cell(row)),
        ),
      );
      const line = h("tr", { role: "row" }, cells);
      body.append(line);
      options.made?.(row, line);
    }
    shown = Math.min(rows.length, shown + step);
    more.hidden = shown >= rows.length;
    more.textContent = `Show more (${count(rows.length - shown)} left)`;
  };
  show();
  const scroller = h(
    "div",
    { class: "scroller", role: "region", tabindex: 0, "aria-label": options.caption },
    element,
  );
  return h("div", { class: "table-wrap" }, scroller, more);
}
