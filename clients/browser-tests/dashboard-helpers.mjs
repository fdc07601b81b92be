// What the tests of the dashboard share: traffic, waiting, and navigation as a person does it.

import { accessibilityViolations } from "./browser.mjs";

export const HOSTILE = "<img src=x onerror=alert(1)>";
export const USERS = [
  "ada",
  HOSTILE,
  "</script><script>alert(2)</script>",
  "\u202ereversed",
  "two\nlines",
  "x".repeat(10_000),
];
export const PAGES = ["Overview", "Rules", "Keys", "Near the limit", "Denials", "Audit", "Policy"];

const WAIT_MS = 15_000;

/** Sends a request for a decision to the HTTP listener, and returns the response. */
export async function check(http, domain, attributes) {
  const response = await fetch(`${http}/v1/check`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ domain, attributes }),
  });
  return response.json();
}

/** Traffic with denials of every user. */
export async function sendTraffic(http) {
  for (const user of USERS) {
    for (let turn = 0; turn < 8; turn += 1) {
      await check(http, "api", { user, ip: "192.0.2.7", route: "/upload" });
    }
  }
}

/** Waits until something is true. */
export async function until(what, isTrue) {
  const end = Date.now() + WAIT_MS;
  let failure;
  while (Date.now() < end) {
    try {
      if (await isTrue()) return;
      failure = undefined;
    } catch (error) {
      failure = error;
    }
    await new Promise((wake) => setTimeout(wake, 50));
  }
  throw new Error(`not seen: ${what}${failure ? ` (${failure.message})` : ""}`);
}

/** The id of a denial that the daemon has kept: of many in a second, of one key, it keeps some. */
export async function keptDenial(admin, http, attributes) {
  let id;
  await until("a denial that was kept", async () => {
    ({ decision_id: id } = await check(http, "api", attributes));
    const response = await fetch(new URL(`/admin/v1/denials?decision_id=${id}`, admin));
    return (await response.json()).denials.length === 1;
  });
  return id;
}

export const mainText = (page) => page.locator("main").innerText();

export async function untilText(page, text) {
  await until(`“${text}”`, async () => (await mainText(page)).includes(text));
}

/** Opens a page by its link, through the menu where the screen is narrow. */
export async function open(page, name) {
  const menu = page.getByRole("button", { name: "Menu" });
  if (await menu.isVisible()) await menu.click();
  await page.getByRole("navigation").getByRole("link", { name, exact: true }).click();
  await page.getByRole("heading", { level: 1, name, exact: true }).waitFor();
  await loaded(page);
}

export async function loaded(page) {
  await until("loaded content", async () => (await page.locator(".loading").count()) === 0);
}

/** Runs `act` while responses with `status` are expected, which browsers report as errors. */
export async function expectingStatus(problems, status, act) {
  const before = problems.length;
  await act();
  const isExpected = (problem) => problem.includes(`responded with a status of ${status}`);
  problems.push(...problems.splice(before).filter((problem) => !isExpected(problem)));
}

/** Adds what is wrong with the page as it is: accessibility, width, elements made of names. */
export async function inspect(page, problems, where) {
  const found = await accessibilityViolations(page);
  const overflow = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
  if (overflow > 0) found.push(`the page is ${overflow} px wider than the screen`);
  const made = await page.locator("main img, main script, dialog img, dialog script").count();
  if (made > 0) found.push("a name became an element");
  problems.push(...found.map((problem) => `${where}: ${problem}`));
}

/** The dialog that is open; its button acts, and it is gone afterwards. */
export async function accept(page, action) {
  const dialog = page.getByRole("dialog");
  const button = dialog.getByRole("button", { name: action, exact: true });
  await until(`the button ${action}`, () => button.isEnabled());
  await button.click();
  await dialog.waitFor({ state: "detached" });
  await loaded(page);
}
