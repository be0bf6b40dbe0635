// Pages that renew themselves.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { after, before } from "node:test";
import { Browser, Daemon, eventually, test } from "./console.mjs";

const PLAIN = "pipeline: Plain\nsteps: { A: { command: [cat] } }\nflow: [{ start: A }]\n";
const WAITS = "pipeline: Waits\nsteps: { Wait: { command: [sh, -c, 'until [ -e go ]; do sleep 0.01; done; cat'] } }\n"
  + "flow: [{ start: Wait }]\n";
const LONG = "pipeline: Long\nsteps: { A: { command: [cat] }, Wait: { command: [sh, -c, 'until [ -e far ]; do sleep 0.01; done; cat'] } }\n"
  + `flow: [{ start: A }, ${"{ chain: A }, ".repeat(8)}{ chain: Wait }]\n`;
const ASKS = "pipeline: Asks\nsteps: { A: { command: [cat] }, B: { command: [cat] } }\n"
  + "flow: [{ start: A }, dampen, { chain: B }]\n";

let daemon, browser;
before(async () => {
  daemon = await Daemon.start({ "plain.yml": PLAIN, "long.yml": LONG, "waits.yml": WAITS, "asks.yml": ASKS });
  browser = await Browser.start();
});
after(async () => {
  await browser?.stop();
  await daemon?.remove();
});

const word = (page) => page.locator("#live [role=status]").textContent();
const isLive = (page) => eventually("the page is live", async () => await word(page) === "live");
const trigger = (pipeline) => daemon.say("trigger", pipeline, "1");
const rowOf = (page, run) => page.locator(`main a[href="/runs/${run}"]`).first();

async function sound(page) {
  assert.deepEqual(page.complaints, []);
  await page.context().close();
}

test("a change is seen without a reload, and how soon is told", async () => {
  const page = await browser.open(`${daemon.url}/runs`);
  await isLive(page);
  await page.evaluate(() => { window.isTheSame = true; });
  const took = [];
  for (let i = 0; i < 20; i += 1) {
    const run = await trigger("Plain");
    const began = performance.now();
    await page.waitForFunction((run) => document.querySelector(`main a[href="/runs/${run}"]`), run);
    took.push(performance.now() - began);
    // At any moment of the second between two reads.
    await new Promise((next) => setTimeout(next, (i * 137) % 1_000));
  }
  took.sort((a, b) => a - b);
  console.log(`seen after ${took.map(Math.round).join(", ")} ms`);
  assert.ok(await page.evaluate(() => window.isTheSame));
  await sound(page);
});

test("a wide graph begins at the node that goes on, and stays where its reader scrolls it", async () => {
  const run = await trigger("Long");
  const page = await browser.open(`${daemon.url}/runs/${run}`, { viewport: { width: 1280, height: 700 } });
  await isLive(page);
  await eventually("the last step goes on", async () => {
    await page.reload();
    return await page.locator(".picture .node.is-running", { hasText: "Wait" }).count() === 1;
  });
  const left = () => page.evaluate(() => document.querySelector(".picture").scrollLeft);
  const isSeen = await page.evaluate(() => {
    const of = (it) => document.querySelector(it).getBoundingClientRect();
    const [box, node] = [of(".picture"), of(".picture .node.is-running")];
    return box.left <= node.left && node.right <= box.right;
  });
  assert.ok(isSeen && await left() > 0);
  assert.equal(await page.evaluate(() => scrollY), 0);
  await page.evaluate(() => { document.querySelector(".picture").scrollLeft = 7; });
  await writeFile(`${daemon.dir}/far`, "");
  await page.waitForFunction(() => !document.querySelector(".picture .node.is-running"));
  assert.equal(await left(), 7);
  await sound(page);
});

test("what is typed, ticked, focused and scrolled is the reader's", async () => {
  for (let i = 0; i < 30; i += 1) await trigger("Plain");
  const page = await browser.open(`${daemon.url}/runs`, { viewport: { width: 480, height: 500 } });
  await isLive(page);
  const key = page.locator("#key"), box = page.locator("input[type=checkbox]").first();
  await box.check();
  await key.fill("order-4");
  await page.evaluate(() => { document.querySelector(".scroll").scrollLeft = 40; });
  await key.evaluate((field) => field.setSelectionRange(2, 5));
  await rowOf(page, await trigger("Plain")).waitFor();
  assert.equal(await key.inputValue(), "order-4");
  assert.ok(await box.isChecked());
  assert.ok(await key.evaluate((field) => field === document.activeElement
    && field.selectionStart === 2 && field.selectionEnd === 5));
  await page.keyboard.type("711");
  assert.equal(await key.inputValue(), "or711-4");
  assert.equal(await page.evaluate(() => document.querySelector(".scroll").scrollLeft), 40);

  // A link in a row has the focus: new rows above it do not move it.
  const link = page.locator("tbody th a").nth(12);
  const address = await link.getAttribute("href");
  await link.focus();
  const at = () => page.evaluate(() => document.activeElement.getBoundingClientRect().top);
  const top = await at();
  await rowOf(page, await trigger("Plain")).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("href")), address);
  assert.ok(Math.abs(await at() - top) < 1, `${await at()} and not ${top}`);
  await sound(page);
});

test("a reader who reads further down stays there, and an older page does not jump", async () => {
  for (let i = 0; i < 55; i += 1) await trigger("Plain");
  const page = await browser.open(`${daemon.url}/runs`, { viewport: { width: 900, height: 500 } });
  await isLive(page);
  await page.evaluate(() => scrollTo(0, 700));
  const seen = () => page.evaluate(() => {
    const row = document.elementFromPoint(innerWidth / 2, innerHeight / 3).closest("tr");
    return [row.querySelector("a").href, Math.round(row.getBoundingClientRect().top)];
  });
  const before = await seen();
  await rowOf(page, await trigger("Plain")).waitFor({ state: "attached" });
  assert.deepEqual(await seen(), before);
  await page.locator("a[rel=next]").click();
  await isLive(page);
  const first = await page.locator("tbody th a").first().getAttribute("href");
  const asOf = await page.locator(".asof .id").textContent();
  await trigger("Plain");
  await eventually("it was read again twice", async () => {
    const now = await page.locator(".asof .id").textContent();
    return Date.parse(now.replace(" UTC", "Z")) >= Date.parse(asOf.replace(" UTC", "Z")) + 2_000;
  });
  assert.equal(await page.locator("tbody th a").first().getAttribute("href"), first);
  await sound(page);
});

test("selected text stays selected, and the page goes on when it no longer is", async () => {
  const page = await browser.open(`${daemon.url}/runs`);
  await isLive(page);
  await page.evaluate(() => getSelection().selectAllChildren(document.querySelector("tbody td")));
  const text = await page.evaluate(() => String(getSelection()));
  const run = await trigger("Plain");
  await eventually("it is held", async () => await word(page) === "held");
  assert.equal(await page.evaluate(() => String(getSelection())), text);
  assert.equal(await rowOf(page, run).count(), 0);
  await page.evaluate(() => getSelection().removeAllRanges());
  await rowOf(page, run).waitFor();
  await sound(page);
});

test("a page that is paused shows nothing new until it is resumed", async () => {
  const [page, other] = [await browser.open(`${daemon.url}/runs`), await browser.open(`${daemon.url}/runs`)];
  await isLive(page);
  await isLive(other);
  await page.getByRole("button", { name: "Pause", exact: true }).click();
  assert.equal(await word(page), "paused");
  const run = await trigger("Plain");
  await rowOf(other, run).waitFor();
  assert.equal(await rowOf(page, run).count(), 0);
  await page.getByRole("button", { name: "Resume", exact: true }).click();
  await rowOf(page, run).waitFor();
  await sound(page);
  await sound(other);
});

test("an answer that is being typed survives that somebody else answers", async () => {
  const run = await trigger("Asks");
  const page = await browser.open(`${daemon.url}/waiting`);
  await isLive(page);
  await rowOf(page, run).waitFor();
  const field = page.locator(`form[action="/runs/${run}/resume"] [name=value]`).first();
  await field.evaluate((it) => { const details = it.closest("details"); if (details) details.open = true; });
  await field.fill("[1, 2]");
  const second = await trigger("Asks");
  await rowOf(page, second).waitFor();
  assert.equal(await field.inputValue(), "[1, 2]");
  await daemon.say("resume", run);
  await page.locator(".gone").waitFor();
  assert.equal(await field.inputValue(), "[1, 2]");
  await sound(page);
});

test("a run goes on before the reader's eyes, and ends there", async () => {
  const run = await trigger("Waits");
  const views = ["", "?view=timeline"].map((view) => browser.open(`${daemon.url}/runs/${run}${view}`));
  const pages = await Promise.all(views);
  for (const page of pages) {
    await isLive(page);
    await page.getByText("running").first().waitFor();
    await page.evaluate(() => { window.isTheSame = true; });
  }
  await writeFile(`${daemon.dir}/go`, "");
  for (const page of pages) {
    await page.locator("h1").getByText("completed").waitFor();
    assert.ok(await page.evaluate(() => window.isTheSame));
    await sound(page);
  }
});

test("a console that ends and comes back is found again, and nothing is missed", async () => {
  const page = await browser.open(`${daemon.url}/runs`);
  await isLive(page);
  await daemon.stop();
  await eventually("it says so", async () => await word(page) === "reconnecting…");
  const run = await trigger("Plain");
  await daemon.again();
  await rowOf(page, run).waitFor();
  await isLive(page);
  await sound(page);
});

test("without a script a page is the same, and says nothing of being live", async () => {
  const page = await browser.open(`${daemon.url}/runs`, { javaScriptEnabled: false });
  assert.ok(await page.locator("main h1").isVisible());
  assert.ok(!await page.locator("#live").isVisible());
  await sound(page);
});

test("a question before a deed stays as it was asked, and is asked for once", async () => {
  const page = await browser.open(`${daemon.url}/bulk/new?verb=cancel&all=1`);
  let asked = 0;
  page.on("request", () => { asked += 1; });
  await eventually("it is not live", async () => await page.locator("#live").isHidden());
  const before = asked;
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await page.waitForTimeout(1_500);
  assert.equal(asked, before);
  await sound(page);
});
