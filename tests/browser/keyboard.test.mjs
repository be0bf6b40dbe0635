// Everything that a person does, by keyboard alone, with scripts and without; and the keys that scripts add.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { after, before } from "node:test";
import { Browser, Daemon, eventually, test } from "./console.mjs";

const PIPELINES = {
  "plain.yml": "pipeline: Plain\nsteps: { A: { command: [cat] } }\nflow: [{ start: A }]\n",
  "asks.yml": "pipeline: Asks\nsteps: { A: { command: [cat] }, B: { command: [cat] } }\n"
    + "flow: [{ start: A }, dampen, { chain: B }]\n",
  "halts.yml": "pipeline: Halts\nsteps: { Fail: { command: [sh, -c, '[ -e mended ]'], max_retry: 0 } }\nflow: [{ start: Fail }]\n",
  "asked.yml": "pipeline: Asked\ninput:\n  type: object\n  required: [name]\n  properties: { name: { type: string } }\n"
    + "steps: { A: { command: [cat] } }\nflow: [{ start: A }]\n",
  "waits.yml": "pipeline: Waits\nsteps: { Wait: { command: [sh, -c, 'until [ -e go ]; do sleep 0.01; done; cat'] } }\n"
    + "flow: [{ start: Wait }]\n",
};

let daemon, browser;
before(async () => {
  daemon = await Daemon.start(PIPELINES);
  browser = await Browser.start();
});
after(async () => {
  await browser?.stop();
  if (daemon) {
    await writeFile(`${daemon.dir}/go`, "");
    await daemon.remove();
  }
});

const shown = async (run) => JSON.parse(await daemon.say("show", run, "--json"));
const becomes = (run, state) => eventually(`${run} is ${state}`, async () => (await shown(run)).status === state);

// Presses Tab until the element with this selector has the focus, which has to be visible there.
async function tabTo(page, selector) {
  for (let i = 0; i < 150; i += 1) {
    await page.keyboard.press("Tab");
    const found = await page.evaluate((selector) => {
      const it = document.activeElement;
      if (!it?.matches(selector)) return null;
      const { outlineStyle, outlineWidth } = getComputedStyle(it);
      return { isOutlined: outlineStyle !== "none" && outlineWidth !== "0px", isVisible: it.checkVisibility() };
    }, selector);
    if (!found) continue;
    assert.ok(found.isOutlined && found.isVisible, `${selector} has the focus, and it is not seen`);
    return;
  }
  assert.fail(`no Tab leads to ${selector} on ${page.url()}: ${await page.locator("main").innerText()}`);
}

// Presses the button with this selector, and waits for an address of this form. The new page may have the same
// address as the old one, and Chromium does not close a page that is still loading: so the wait is for the
// arrival.
async function press(page, selector, address) {
  await tabTo(page, selector);
  const arrival = page.waitForEvent("framenavigated");
  await page.keyboard.press("Enter");
  await arrival;
  await page.waitForURL(address).catch(async (error) => {
    throw new Error(`${await page.locator("main").innerText()}`, { cause: error });
  });
}

for (const javaScriptEnabled of [true, false]) {
  test(`all that a person does is done by keyboard, ${javaScriptEnabled ? "with scripts" : "without scripts"}`, async () => {
    const page = await browser.open(`${daemon.url}/pipelines/Plain`, { javaScriptEnabled });

    // Trigger a run with any value.
    await press(page, 'a[href="/pipelines/Plain/trigger"]', "**/trigger");
    await tabTo(page, "textarea");
    await page.keyboard.press("Control+a");
    await page.keyboard.type('{"a": 1}');
    await press(page, "main form.act button", /\/runs\/[0-9a-f-]{36}$/);
    await becomes(page.url().split("/").pop(), "completed");

    // Trigger one with the form that is made from its schema.
    await page.goto(`${daemon.url}/pipelines/Asked/trigger`);
    await tabTo(page, "main form.act input[required]");
    await page.keyboard.type("Ada");
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/runs\/[0-9a-f-]{36}$/);
    const asked = page.url().split("/").pop();
    await becomes(asked, "completed");
    assert.deepEqual((await shown(asked)).input, { name: "Ada" });

    // Cancel a run, which asks first.
    const waits = await daemon.say("trigger", "Waits", "1");
    await page.goto(`${daemon.url}/runs/${waits}`);
    await press(page, `a[href="/runs/${waits}/cancel"]`, "**/cancel");
    await press(page, "main form button.bad", `**/runs/${waits}`);
    await becomes(waits, "cancelled");

    // Answer a waiting run.
    const asks = await daemon.say("trigger", "Asks", "1");
    await becomes(asks, "dampened");
    await page.goto(`${daemon.url}/waiting`);
    await press(page, `form[action="/runs/${asks}/resume"] button`, (url) => url.pathname !== "/waiting" || url.search !== "");
    await becomes(asks, "completed");

    // Revive a run, and all runs of one kind with a bulk action.
    const [first, second, third] = [await daemon.say("trigger", "Halts"), await daemon.say("trigger", "Halts"), await daemon.say("trigger", "Halts")];
    for (const run of [first, second, third]) await becomes(run, "halted");
    await page.goto(`${daemon.url}/runs/${first}`);
    await press(page, `form[action="/runs/${first}/revive"] button`, (url) => !url.pathname.endsWith(first));
    await page.goto(`${daemon.url}/halted`);
    await press(page, 'main a[href^="/bulk/new?verb=revive"]', "**/bulk/new?**");
    await press(page, "main form button.main", /\/bulk\/[0-9a-f-]{36}/);
    await eventually("all are revived", async () => {
      const runs = await (await fetch(`${daemon.url}/api/v1/runs?pipeline=Halts`)).json();
      return [second, third].every((run) => runs.some((it) => it.revived_from === run));
    });

    // Choose a run in the list.
    const chosen = await daemon.say("trigger", "Waits", "2");
    await page.goto(`${daemon.url}/runs?pipeline=Waits`);
    await tabTo(page, `input[name=run][value="${chosen}"]`);
    await page.keyboard.press("Space");
    await press(page, "main button[value=cancel]", "**/bulk/new?**");
    await press(page, "main form button.main", /\/bulk\/[0-9a-f-]{36}/);
    await becomes(chosen, "cancelled");

    // Pause and unpause a pipeline.
    await page.goto(`${daemon.url}/pipelines/Plain`);
    await tabTo(page, "summary");
    await page.keyboard.press("Enter");
    await tabTo(page, "input[name=reason]");
    await page.keyboard.type("bad feed");
    // The old page tells of the pause, too, as soon as it hears of it; the new one has the button.
    const paused = page.waitForEvent("framenavigated");
    await page.keyboard.press("Enter");
    await paused;
    await page.getByText("bad feed").first().waitFor();
    await press(page, 'form[action="/pipelines/Plain/unpause"] button', "**/pipelines/Plain**");
    await eventually("it is no longer paused", async () => !await page.getByText("bad feed").isVisible());

    assert.deepEqual(page.complaints.filter((it) => !/status of 4/.test(it)), []);
    await page.context().close();
  });
}

test("keys lead to pages, to the search and along rows, and leave fields and their reader alone", async () => {
  for (let i = 0; i < 3; i += 1) await daemon.say("trigger", "Plain", "1");
  const page = await browser.open(daemon.url);
  const keys = async (...all) => { for (const key of all) await page.keyboard.press(key); };
  await keys("g", "r");
  await page.waitForURL("**/runs");
  const rows = await page.locator("main tbody th a").evaluateAll((links) => links.map((link) => link.getAttribute("href")));
  const focused = () => page.evaluate(() => document.activeElement.getAttribute("href"));
  await keys("j");
  assert.equal(await focused(), rows[0]);
  await keys("j", "j", "k");
  assert.equal(await focused(), rows[1]);
  await keys("x");
  assert.ok(await page.locator("tbody input[type=checkbox]").nth(1).isChecked());

  // A field takes its characters, and a browser's shortcut stays the browser's.
  await keys("/");
  await page.keyboard.type("g?j/");
  assert.equal(await page.locator("#find").inputValue(), "g?j/");
  await page.locator("main h1").click();
  await keys("Control+j");
  assert.ok(page.url().endsWith("/runs"));

  // The list of all keys; it also turns them off, for every page, and on again.
  await keys("?");
  const dialog = page.locator("dialog.keys");
  assert.ok(await dialog.getByText("Next row, previous row").isVisible());
  await dialog.getByRole("checkbox").uncheck();
  await keys("Escape");
  await page.reload();
  await keys("?", "g", "h", "j");
  assert.ok(!await dialog.isVisible());
  assert.ok(page.url().endsWith("/runs"));
  assert.equal(await focused(), null);
  await page.getByRole("button", { name: "Keys" }).click();
  await dialog.getByRole("checkbox").check();
  await dialog.getByRole("button", { name: "Close" }).click();
  await keys("g", "h");
  await page.waitForURL("**/halted");
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});

test("a button that is clicked twice does its deed once, and does it again for somebody who has waited", async () => {
  const page = await browser.open(`${daemon.url}/pipelines/Plain/trigger`);
  let sent = 0;
  page.on("request", (request) => { if (request.method() === "POST") sent += 1; });
  // The answer comes after the second click. A browser then gives up the first request, which the console may have read.
  await page.route("**/trigger", async (route) => {
    await new Promise((resolve) => { setTimeout(resolve, 500); });
    await route.continue();
  });
  const button = page.locator("main form.act button");
  for (const all of [1, 2]) {
    // As quick as a person: of two clicks that come before it has begun to send, Chromium itself makes one.
    await button.evaluate((it) => { it.click(); setTimeout(() => it.click(), 150); });
    await page.waitForURL(/\/runs\/[0-9a-f-]{36}$/);
    assert.equal(sent, all);
    if (all === 1) await page.goBack();
  }
  await page.context().close();
});
