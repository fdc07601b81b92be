// Pieces that several pages have.

import { ApiError, isAbort } from "./api.ts";
import { button, fill, h, type Child } from "./dom.ts";
import { percent, time, visible } from "./format.ts";
import type { Diagnostic, Key } from "./types.ts";

/** Text of others: cut, and without influence on its surroundings. */
export function foreign(text: string, className = "value"): HTMLElement {
  const shown = visible(text);
  return h(
    "bdi",
    { class: className, title: shown === text ? undefined : visible(text, 1000) },
    shown,
  );
}

/** A sentence of the daemon, whose names in backticks become code. */
export function prose(text: string, max = 2000): Child {
  return visible(text, max)
    .split(/(`[^`]+`)/)
    .map((part) => (/^`[^`]+`$/.test(part) ? h("code", {}, part.slice(1, -1)) : part));
}

export function badge(text: string, kind = ""): HTMLElement {
  return h("span", { class: `badge ${kind}`.trim() }, text);
}

export function modeBadge(mode: string | undefined): HTMLElement {
  return mode === "shadow" ? badge("shadow", "shadow") : badge("enforce", "enforce");
}

/** The attributes of a key, each as `name value`. */
export function keyChips(key: Key | null): HTMLElement {
  const entries = Object.entries(key ?? {});
  if (entries.length === 0) return h("span", { class: "muted" }, "one key for all");
  return h(
    "span",
    { class: "chips" },
    entries.map(([name, value]) =>
      h(
        "span",
        { class: "chip" },
        h("span", { class: "chip-name" }, visible(name, 60)),
        value === null ? h("span", { class: "muted" }, "absent") : foreign(value),
      ),
    ),
  );
}

export const rulePath = (domain: string, name: string): string =>
  `#/rules/${encodeURIComponent(domain)}/${encodeURIComponent(name)}`;

export function ruleLink(domain: string, name: string): HTMLElement {
  return h("a", { href: rulePath(domain, name) }, foreign(`${domain}/${name}`, "name"));
}

/** The page of a key; absent attributes are left out. */
export function keyPath(domain: string, attributes: Key): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null) search.append(name, value);
  }
  const text = search.toString();
  return `#/keys/${encodeURIComponent(domain)}${text ? `?${text}` : ""}`;
}

export function timeOf(value: string | number): HTMLElement {
  const date = new Date(value);
  if (Number.isNaN(date.getTime())) return h("span", {}, String(value));
  return h("time", { datetime: date.toISOString(), title: date.toISOString() }, time(value));
}

/** How much of a limit is used. */
export function usageBar(share: number | null): HTMLElement {
  const level = share === null ? "" : share >= 1 ? "full" : share >= 0.8 ? "high" : "";
  const meter = h("span", { class: `meter ${level}`.trim(), "aria-hidden": "true" });
  const part = h("span", { class: "meter-part" });
  part.style.width = `${Math.min(100, Math.max(0, (share ?? 0) * 100))}%`;
  meter.append(part);
  return h("span", { class: "usage" }, meter, h("span", { class: "num" }, percent(share)));
}

const MEANING: Record<number, string> = {
  0: "The daemon does not respond. Is it running?",
  401: "The session has ended. Log in again.",
  403: "This client may not do that.",
  422: "This cannot be applied.",
  503: "The daemon cannot do this at the moment.",
};

/** An error, with everything that the daemon reported. */
export function problemBox(error: unknown, heading?: string): HTMLElement {
  if (isAbort(error)) return h("div");
  const problem = error instanceof ApiError ? error.problem : null;
  const detail = problem ? problem.detail : error instanceof Error ? error.message : String(error);
  const known = (problem && MEANING[problem.status]) ?? problem?.title ?? "That did not work.";
  const title = heading ?? known;
  const errors = problem?.errors ?? [];
  return h(
    "div",
    { class: "notice error", role: "alert" },
    h("strong", {}, title),
    errors.length > 0 ? diagnosticList(errors) : detail && h("pre", {}, visible(detail, 2000)),
  );
}

/** Errors and warnings of a policy, with their positions. */
export function diagnosticList(
  diagnostics: readonly Diagnostic[],
  jump?: (diagnostic: Diagnostic) => void,
): HTMLElement {
  return h(
    "ul",
    { class: "diagnostics" },
    diagnostics.slice(0, 100).map((diagnostic) => {
      const position = `${diagnostic.line}:${diagnostic.column}`;
      return h(
        "li",
        { class: diagnostic.severity },
        jump
          ? button(`line ${position}`, () => jump(diagnostic), "link num")
          : diagnostic.line > 0 && h("span", { class: "num muted" }, position),
        " ",
        badge(diagnostic.severity, diagnostic.severity === "error" ? "denied" : "shadow"),
        " ",
        visible(diagnostic.message, 1000),
        diagnostic.hint && h("div", { class: "hint" }, visible(diagnostic.hint, 1000)),
      );
    }),
  );
}

export function notice(kind: "info" | "warning" | "error", ...children: Child[]): HTMLElement {
  return h("div", { class: `notice ${kind}` }, children);
}

/** Why there are no controls. */
export function mayNotChange(): HTMLElement {
  return notice(
    "info",
    "Read only: this client lacks the scope admin, so controls for changes are left out.",
  );
}

export function card(title: Child, ...children: Child[]): HTMLElement {
  return h("section", { class: "card" }, h("h2", {}, title), children);
}

/** Names and values. */
export function facts(entries: readonly (readonly [string, Child])[]): HTMLElement {
  return h(
    "dl",
    { class: "facts" },
    entries.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

/** Fills `target` with what `load` returns, or with its error and a way to try again. */
export async function loadInto(
  target: HTMLElement,
  signal: AbortSignal,
  load: () => Promise<Child>,
): Promise<void> {
  if (!target.hasChildNodes()) fill(target, h("p", { class: "muted loading" }, "Loading…"));
  try {
    const content = await load();
    if (!signal.aborted) fill(target, content);
  } catch (error) {
    if (signal.aborted || isAbort(error)) return;
    target.dataset["failed"] = "";
    fill(
      target,
      problemBox(error),
      button("Try again", () => {
        delete target.dataset["failed"];
        fill(target);
        void loadInto(target, signal, load);
      }),
    );
  }
}
