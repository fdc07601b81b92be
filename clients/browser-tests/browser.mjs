// A headless Chromium that notes what a page must not do. For every page of the project.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Runs `act` with a page of a fresh browser, and returns what went wrong meanwhile. */
export async function withPage(url, { colorScheme = "light", width = 1080, height = 900, allows = [] }, act) {
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
  const problems = [];
  try {
    const context = await browser.newContext({ colorScheme, viewport: { width, height }, bypassCSP: false });
    const page = await context.newPage();
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) problems.push(`console: ${message.text()}`);
    });
    page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
    page.on("dialog", async (dialog) => {
      problems.push(`dialog: ${dialog.message()}`);
      await dialog.dismiss();
    });
    page.on("request", (request) => {
      const target = request.url();
      const isAllowed = target === url || allows.some((origin) => target.startsWith(origin));
      if (!isAllowed && !target.startsWith("data:")) problems.push(`request: ${target}`);
    });
    await page.goto(url, { waitUntil: "load" });
    await act(page, problems);
  } finally {
    await browser.close();
  }
  return problems;
}

/** The violations of accessibility rules that axe finds, one line each. */
export async function accessibilityViolations(page) {
  // Evaluated by the debugger, which the page's own policy does not restrict.
  await page.evaluate(axe);
  const { violations } = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })");
  return violations.map(({ id, nodes }) => `axe: ${id}: ${nodes.map((node) => node.target).join(" ")}`);
}
