// Light or dark: as the system has it, or as it was chosen.

export type Theme = "system" | "light" | "dark";

const NAME = "tidegate-theme";
const listeners = new Set<() => void>();
const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");

function stored(): Theme {
  try {
    const value = localStorage.getItem(NAME);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

let theme = stored();

export const currentTheme = (): Theme => theme;

function show(): void {
  const isDark = theme === "dark" || (theme === "system" && prefersDark.matches);
  document.documentElement.dataset["theme"] = isDark ? "dark" : "light";
  for (const listener of listeners) listener();
}

export function setTheme(next: Theme): void {
  theme = next;
  try {
    if (next === "system") localStorage.removeItem(NAME);
    else localStorage.setItem(NAME, next);
  } catch {
    // Without storage the choice lasts until the page is closed.
  }
  show();
}

/** Calls `act` when the colours change. */
export function onTheme(act: () => void, signal: AbortSignal): void {
  listeners.add(act);
  signal.addEventListener("abort", () => listeners.delete(act));
}

/** The value of a colour of the style sheet. */
export function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

prefersDark.addEventListener("change", show);
show();
