// The dashboard of a daemon with tokens, and of one that goes away.

import assert from "node:assert/strict";
import { request } from "node:http";
import { createInterface } from "node:readline";
import { expectingStatus, inspect, mainText, open, PAGES, until, untilText } from "./dashboard-helpers.mjs";

const CHANGES = /Preview the change|Ban…|Reset…|Override |Unban|Check and preview|Drop all edits/;

async function login(page, token) {
  const field = page.getByLabel("Token");
  await field.fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
}

/** Nothing before the login; `inspect` sees no controls for changes; the logout ends it. */
export async function useTokens(page, problems, { admin, inspector }) {
  await page.getByRole("heading", { name: "Log in" }).waitFor();
  assert.equal(await page.getByRole("navigation").isVisible(), false);
  const field = page.getByLabel("Token");
  assert.equal(await field.getAttribute("type"), "password");
  assert.equal(await field.getAttribute("autocomplete"), "off");
  await inspect(page, problems, "login");
  await expectingStatus(problems, 401, async () => {
    for (const path of ["status", "rules", "history", "events", "denials"]) {
      const status = await page.evaluate(`fetch("/admin/v1/${path}").then((response) => response.status)`);
      assert.equal(status, 401, `${path} without a login`);
    }
  });
  await expectingStatus(problems, 401, async () => {
    await login(page, "tg_wrong");
    await page.getByRole("alert").filter({ hasText: "not accepted" }).first().waitFor();
  });
  await login(page, inspector);
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  await seeNoControls(page, problems);
  await logout(page, problems);
  await login(page, admin);
  await page.getByRole("heading", { level: 1, name: "Policy" }).waitFor();
  await page.getByRole("button", { name: "Check and preview" }).waitFor();
  await page.reload();
  await page.getByRole("button", { name: "Check and preview" }).waitFor();
  await logout(page, problems);
  const stored = await page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])");
  assert.ok(!stored.includes(admin), "scripts do not have the token");
}

async function seeNoControls(page, problems) {
  for (const name of PAGES) {
    await open(page, name);
    assert.doesNotMatch(await mainText(page), CHANGES, `${name} has no controls`);
  }
  await untilText(page, "Read only");
  await inspect(page, problems, "read only");
  await open(page, "Rules");
  await page.getByRole("link", { name: "x y/a/b é%?", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: "x y/a/b é%?", exact: true }).waitFor();
  await untilText(page, "Read only");
  const origin = new URL(page.url()).origin;
  for (const path of ["rules/api/search", "keys/api?user=ada"]) {
    await page.goto(`${origin}/#/${path}`);
    await untilText(page, "Read only");
    assert.doesNotMatch(await mainText(page), CHANGES, `${path} has no controls`);
  }
  await open(page, "Policy");
}

async function logout(page, problems) {
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByRole("heading", { name: "Log in" }).waitFor();
  await expectingStatus(problems, 401, async () => {
    const status = await page.evaluate('fetch("/admin/v1/status").then((response) => response.status)');
    assert.equal(status, 401, "the session has ended");
  });
}

/** A daemon that has as many streams of events as it allows is not called away. */
export async function seeNoEvents(page, problems, admin) {
  const streams = [];
  // One address may have a part of the connections only.
  const openOne = (address) =>
    new Promise((done, failed) => {
      const stream = request(`${admin}/admin/v1/events`, { localAddress: address }, (response) => {
        response.resume();
        done(response.statusCode);
      });
      streams.push(stream);
      stream.on("error", failed);
      stream.end();
    });
  const openAll = async () => {
    while ((await openOne(`127.0.1.${1 + (streams.length % 100)}`)) === 200);
  };
  await expectingStatus(problems, 503, async () => {
    const state = page.locator(".connection");
    // The page may be faster than the end of its own stream of before.
    await until("a page without events", async () => {
      await page.goto("about:blank");
      await openAll();
      await page.goto(`${admin}/`);
      await until("a state", async () => /^(live|no live data)$/.test(await state.innerText()));
      return (await state.innerText()) === "no live data";
    });
    await page.locator(".banner", { hasText: "no live numbers" }).waitFor();
    await open(page, "Rules");
    await page.getByRole("link", { name: "api/search", exact: true }).waitFor();
    for (const stream of streams) stream.destroy();
    await until("live numbers", async () => (await state.innerText()) === "live");
    await page.locator(".banner").waitFor({ state: "hidden" });
  });
}

/** The daemon goes away and returns; the test that runs this stops and starts it. */
export async function loseDaemon(page, problems) {
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const command = async (text) => {
    console.log(text);
    await lines.next();
  };
  const state = page.locator(".connection");
  await until("a live connection", async () => (await state.innerText()) === "live");
  await command("stop");
  const banner = page.locator(".banner");
  await banner.waitFor();
  await open(page, "Rules");
  await until("the error of the page", async () => (await mainText(page)).includes("Is it running?"));
  await inspect(page, problems, "without the daemon");
  await command("start");
  await until("a live connection again", async () => (await state.innerText()) === "live");
  await banner.waitFor({ state: "hidden" });
  await page.getByRole("link", { name: "api/search", exact: true }).waitFor();
  const isExpected = (problem) => /net::ERR_(CONNECTION|INCOMPLETE|EMPTY|NETWORK)/.test(problem);
  problems.splice(0, problems.length, ...problems.filter((problem) => !isExpected(problem)));
}
