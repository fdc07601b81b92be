// Uses the dashboard of a running daemon as a person does, and fails with one line for everything that is wrong.
// usage: node dashboard.mjs use ADMIN HTTP                  every page and every change
//        node dashboard.mjs login ADMIN FILE FILE           the secrets of tokens that may change, and only inspect
//        node dashboard.mjs away ADMIN                      writes `stop` and `start`, and waits for a line after each
//        node dashboard.mjs screenshots ADMIN HTTP FOLDER

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { withPage } from "./browser.mjs";
import { loseDaemon, seeNoEvents, useTokens } from "./dashboard-access.mjs";
import * as flows from "./dashboard-flows.mjs";
import { check, inspect, keptDenial, loaded, open, PAGES, sendTraffic, until, untilText } from "./dashboard-helpers.mjs";

const [task, admin, ...rest] = process.argv.slice(2);
const url = `${admin}/`;
const found = [];
const secret = (file) => readFileSync(file, "utf8").trim();

/** Runs `act` on a page, and notes everything that is wrong. */
async function run(what, options, act) {
  const problems = await withPage(url, { ...options, allows: [url] }, async (page, seen) => {
    page.setDefaultTimeout(15_000);
    try {
      await act(page, seen);
    } catch (error) {
      const where = await page
        .locator("main")
        .innerText()
        .catch(() => "");
      seen.push(`${error.message}\n--- the page was:\n${where.slice(0, 1500)}`);
    }
  });
  found.push(...problems.map((problem) => `${what}: ${problem}`));
}

/** Every page, by clicks; with the pages and dialogs behind them. */
async function visit(page, problems, id) {
  await loaded(page);
  for (const name of PAGES) {
    await open(page, name);
    await inspect(page, problems, name);
  }
  await open(page, "Rules");
  await page.getByRole("link", { name: "api/search", exact: true }).click();
  await page.getByRole("switch").click();
  await until("the preview", () => page.getByRole("dialog").getByText("Effect on").first().isVisible());
  await inspect(page, problems, "preview");
  await page.keyboard.press("Escape");
  await inspect(page, problems, "rule");
  await page.goto(`${url}#/denials/${id}`);
  await page.getByRole("button", { name: "Explain the same request now" }).click();
  await untilText(page, "Denied now");
  await inspect(page, problems, "denial");
  await page.getByRole("link", { name: "Open its keys" }).click();
  await page.getByRole("button", { name: "Ban…" }).click();
  await inspect(page, problems, "ban");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await inspect(page, problems, "key");
}

async function use(http) {
  await sendTraffic(http);
  const id = await keptDenial(admin, http, { user: "ada", ip: "192.0.2.7" });
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1080, 380]) {
      const options = { colorScheme, width };
      await run(`${colorScheme}, ${width} px`, options, (page, seen) => visit(page, seen, id));
    }
  }
  await run("live", {}, (page) => flows.seeLiveNumbers(page, http));
  await run("names", {}, (page) => flows.readHostileNames(page));
  await run("keys", {}, (page) => flows.seeKeys(page));
  await run("streams", {}, (page, seen) => seeNoEvents(page, seen, admin));
  await run("keyboard", {}, (page) => flows.useKeyboard(page));
  await run("changes", {}, async (page, seen) => {
    await flows.editRule(page, http);
    await flows.rejectEdit(page, seen);
    await flows.toggleShadow(page, http);
    await flows.findDenial(page, http);
    await flows.overrideKey(page, http);
    await flows.banKey(page, http);
    await flows.resetKey(page, http);
    await flows.seeChangeOfOthers(page, admin);
    await flows.readAudit(page);
    await flows.editPolicy(page, http, seen);
  });
}

/** Pictures for the guides, with traffic before and meanwhile; the policy is that of dashboard-policy.toml. */
async function takeScreenshots(http, folder) {
  let isOn = true;
  const traffic = async (seed) => {
    for (let turn = seed; isOn; turn += 4) {
      const user = `customer-${Math.floor(Math.abs(Math.sin(turn * 7.3)) ** 4 * 60)}`;
      const attributes = { user, ip: `192.0.2.${turn % 50}`, route: turn % 3 ? "/search" : "/upload" };
      await check(http, "api", attributes);
      await new Promise((wake) => setTimeout(wake, 42 + 12 * Math.sin(Date.now() / 15_000)));
    }
  };
  const running = [0, 1, 2, 3].map(traffic);
  await new Promise((wake) => setTimeout(wake, 130_000));
  const { denials } = await (await fetch(`${admin}/admin/v1/denials?rule=search&limit=1`)).json();
  const denied = denials[0].decision_id;
  const paths = { overview: "#/overview", rule: "#/rules/api/search", denial: `#/denials/${denied}` };
  for (const [name, hash] of Object.entries(paths)) {
    await run(name, { width: 1180, height: name === "denial" ? 620 : 860 }, async (page) => {
      await page.goto(url + hash);
      await loaded(page);
      if (name === "denial") await page.getByRole("button", { name: "Explain the same request now" }).click();
      await page.waitForTimeout(11_000);
      await page.screenshot({ path: join(folder, `dashboard-${name}.png`) });
    });
  }
  isOn = false;
  await Promise.all(running);
}

const tasks = {
  use: () => use(...rest),
  login: () =>
    run("login", {}, (page, seen) => useTokens(page, seen, { admin: secret(rest[0]), inspector: secret(rest[1]) })),
  screenshots: () => takeScreenshots(...rest),
  away: () => run("away", {}, loseDaemon),
};
await tasks[task]();
for (const problem of found) console.error(problem);
process.exit(found.length > 0 ? 1 : 0);
