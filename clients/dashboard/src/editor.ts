// A text area with line numbers and marked lines.

import { h, newId } from "./dom.ts";
import type { Diagnostic } from "./types.ts";

export interface Editor {
  readonly element: HTMLElement;
  text(): string;
  onInput(act: () => void): void;
  /** Marks the lines of diagnostics. */
  mark(diagnostics: readonly Diagnostic[]): void;
  /** Selects the word at a position, both from 1. */
  jump(line: number, column: number): void;
}

/** Lines that get a number; longer texts have none after it. */
const LINES_MAX = 20_000;

export function createEditor(text: string, isReadOnly: boolean): Editor {
  const gutter = h("div", { class: "gutter", "aria-hidden": "true" });
  const area = h("textarea", {
    class: "code",
    id: newId("editor"),
    "aria-label": "Policy in TOML",
    spellcheck: "false",
    autocomplete: "off",
    wrap: "off",
    readonly: isReadOnly,
  });
  area.value = text;
  let marked = new Map<number, string>();
  const number = (): void => {
    const lines = Math.min(area.value.split("\n").length, LINES_MAX);
    while (gutter.childElementCount > lines) gutter.lastElementChild?.remove();
    while (gutter.childElementCount < lines)
      gutter.append(h("div", {}, gutter.childElementCount + 1));
    Array.from(gutter.children).forEach((line, index) => {
      const className = marked.get(index + 1) ?? "";
      if (line.className !== className) line.className = className;
    });
  };
  area.addEventListener("input", number);
  area.addEventListener("scroll", () => void (gutter.scrollTop = area.scrollTop));
  number();
  return {
    element: h("div", { class: "editor" }, gutter, area),
    text: () => area.value,
    onInput: (act) => area.addEventListener("input", act),
    mark(diagnostics) {
      marked = new Map(diagnostics.map(({ line, severity }) => [line, `marked ${severity}`]));
      number();
    },
    jump(line, column) {
      const before = area.value.split("\n").slice(0, Math.max(0, line - 1));
      const start = before.reduce((sum, it) => sum + it.length + 1, 0) + Math.max(0, column - 1);
      const end = start + (/^[^\s,\]}]+/.exec(area.value.slice(start))?.[0].length ?? 1);
      area.focus();
      area.setSelectionRange(start, end);
      const height = parseFloat(getComputedStyle(area).lineHeight) || 18;
      area.scrollTop = Math.max(0, (line - 4) * height);
    },
  };
}
