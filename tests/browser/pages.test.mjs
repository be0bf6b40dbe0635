// Every page, in both themes and at three widths, full of hostile text; and by keyboard alone.
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before } from "node:test";
import { Browser, Daemon, eventually, test, violations } from "./console.mjs";

// The directory for pictures of all pages, if they are wanted.
const PICTURES = process.env.BROWSER_PICTURES;
const WIDTHS = [360, 768, 1280];
const THEMES = ["light", "dark"];

// Markup, an address that is a script, characters that change the text direction, a terminal escape, and a
// very long word.
const HOSTILE = `<img src=x onerror="document.title='run'"><script>document.title='run'</script>`
  + `"'javascript:document.title='run' \u202egnirts\u202c \u001b[31mred {{7*7}} ${"x".repeat(300)}`;

const PIPELINES = {
  "plain.yml": "pipeline: Plain\nsteps: { A: { command: [cat] } }\nflow: [{ start: A }]\n",
  "asks.yml": "pipeline: Asks\nsteps: { A: { command: [cat] }, B: { command: [cat] } }\n"
    + "flow: [{ start: A }, dampen, { chain: B }]\n",
  "halts.yml": "pipeline: Halts\nsteps: { Fail: { command: [sh, -c, 'cat >&2; exit 1'], max_retry: 1 } }\n"
    + "flow: [{ start: Fail }]\n",
  "fans.yml": "pipeline: Fans\nsteps:\n  List: { command: [cat] }\n"
    + "  Each: { command: [sh, -c, 'read n; test $n != 7 && echo $n'], max_retry: 0 }\n  All: { command: [cat] }\n"
    + "flow: [{ start: List }, { expand: Each }, { collapse: All }]\n",
  "shapes.yml": "pipeline: Shapes\nsteps:\n  First: { command: [cat] }\n  Left: { command: [cat] }\n"
    + "  Right: { command: [cat] }\n  Both: { command: [cat] }\n"
    + "flow: [{ start: First }, { divide: [Left, Right] }, { combine: Both }]\n",
  "asked.yml": "pipeline: Asked\ninput:\n  type: object\n  required: [name]\n  properties:\n"
    + "    name: { type: string, title: Name of the customer, minLength: 1 }\n    count: { type: integer, minimum: 1, default: 3 }\n"
    + "    how: { enum: [fast, careful] }\n    gift: { type: boolean }\n    tags: { type: array, items: { type: string } }\n"
    + "steps: { A: { command: [cat] } }\nflow: [{ start: A }]\n",
  "waits.yml": "pipeline: Waits\nsteps: { Wait: { command: [sh, -c, 'until [ -e go ]; do sleep 0.01; done; cat'] } }\n"
    + "flow: [{ start: Wait }]\n",
};

let daemon, browser;
const runs = {};
const status = async (run) => JSON.parse(await daemon.say("show", run, "--json")).status;
const becomes = (run, state) => eventually(`${run} is ${state}`, async () => await status(run) === state);

before(async () => {
  process.env.SECRET_OF_SHOP = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
  daemon = await Daemon.start(PIPELINES,
    'webhooks: [{ name: shop, url: "http://127.0.0.1:9/", secret: "${SECRET_OF_SHOP}" }]');
  browser = await Browser.start();
  const hostile = JSON.stringify({ name: HOSTILE, [HOSTILE]: HOSTILE });
  runs.plain = await daemon.say("trigger", "Plain", hostile, "--key", HOSTILE.slice(0, 250));
  runs.asks = await daemon.say("trigger", "Asks", hostile);
  runs.halts = await daemon.say("trigger", "Halts", hostile);
  runs.revived = await daemon.say("trigger", "Halts", hostile);
  runs.fans = await daemon.say("trigger", "Fans", JSON.stringify([...Array(120).keys()]));
  runs.shapes = await daemon.say("trigger", "Shapes", hostile);
  runs.waits = await daemon.say("trigger", "Waits", "1");
  runs.cancelled = await daemon.say("trigger", "Waits", "2");
  await becomes(runs.plain, "completed");
  await becomes(runs.asks, "dampened");
  for (const run of [runs.halts, runs.revived, runs.fans]) await becomes(run, "halted");
  await becomes(runs.shapes, "completed");
  await daemon.say("revive", runs.revived);
  await daemon.say("cancel", runs.cancelled);
  // A reason and a name may contain no characters that control a terminal.
  const tame = HOSTILE.replace(/[\u001b\u202a-\u202e]/g, "");
  await daemon.say("pause", "Asked", "--reason", tame.slice(0, 200), "--by", tame.slice(0, 60));
});
after(async () => {
  await browser?.stop();
  if (daemon) {
    await writeFile(`${daemon.dir}/go`, "");
    await daemon.remove();
  }
});

// An address without the names of its objects, so that each kind of page is looked at once.
function kind(address) {
  const url = new URL(address);
  const path = url.pathname.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, "ID").replace(/^\/pipelines\/[^/]+/, "/pipelines/NAME");
  const view = ["view", "gone", "verb", "state"].filter((key) => url.searchParams.get(key))
    .map((key) => `${key}=${url.searchParams.get(key)}`).join("&");
  return view ? `${path}?${view}` : path;
}

// One address of each kind of page that links lead to, beginning with those of a few runs.
async function reached() {
  const page = await browser.open(daemon.url, { javaScriptEnabled: false });
  const addresses = new Map();
  const open = ["/", "/sign-in", "/nowhere", ...["fans", "halts", "asks", "revived", "waits", "plain"].map((name) => `/runs/${runs[name]}`),
    "/pipelines/Asked/trigger", `/runs/${runs.waits}/cancel`, "/bulk/new?verb=cancel&all=1"]
    .map((path) => daemon.url + path);
  const seen = new Map();
  while (open.length) {
    const address = open.shift();
    const { pathname } = new URL(address);
    if (seen.has(address) || seen.size > 300) continue;
    // Enough of each kind to meet pages of both a plain run and one full of errors.
    const already = [...seen.values()].filter((it) => it === kind(address)).length;
    if (already >= (pathname === `/runs/${pathname.slice(6, 42)}` ? 6 : 2)) continue;
    seen.set(address, kind(address));
    if (/\/(input|output)$|\.svg$|^\/(assets|api|metrics)/.test(pathname)) continue;
    const response = await page.goto(address);
    assert.ok(response.status() < 500, `${response.status()} at ${address}`);
    if (!response.headers()["content-type"]?.startsWith("text/html")) continue;
    addresses.set(address, kind(address));
    for (const link of await page.locator("a[href]").all()) {
      const href = new URL(await link.getAttribute("href"), address);
      href.hash = "";
      if (href.origin === daemon.url) open.push(href.href);
      else assert.match(href.protocol, /^https?:$/, `a link leads to ${href}`);
    }
  }
  await page.context().close();
  return addresses;
}

// Elements whose text overflows their box or the window, and a window that scrolls sideways.
const misplaced = (page) => page.evaluate(() => {
  const wrong = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) wrong.push(`the window scrolls: ${root.scrollWidth} of ${root.clientWidth}`);
  for (const element of document.querySelectorAll("body *")) {
    if (element.closest("svg") || !element.checkVisibility() || !element.clientWidth) continue;
    const { overflowX, display } = getComputedStyle(element);
    if (display === "inline" || overflowX !== "visible") continue;
    if (element.scrollWidth > element.clientWidth + 1 && [...element.childNodes].some((it) => it.nodeType === 3 && it.data.trim())) {
      wrong.push(`${element.scrollWidth} of ${element.clientWidth}: ${element.outerHTML.slice(0, 120)}`);
    }
  }
  return wrong;
});

// All that is wrong with these pages in a theme.
async function wrongIn(theme, addresses) {
  const wrong = [];
  const page = await browser.open(daemon.url, { colorScheme: theme });
  let number = 0;
  for (const [address, kind] of addresses) {
    number += 1;
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 900 });
      if (width === WIDTHS[0]) await page.goto(address);
      const found = [...await misplaced(page), ...await violations(page)];
      wrong.push(...found.map((it) => `${theme} ${kind} ${width}: ${it}`));
      if (PICTURES) {
        const name = `${String(number).padStart(2, "0")}${kind.replace(/[^a-zA-Z]+/g, "-")}-${theme}-${width}.png`;
        await page.screenshot({ path: join(PICTURES, name), fullPage: true });
      }
    }
    assert.notEqual(await page.title(), "run", `${theme}: a text of ${address} ran`);
  }
  const complaints = page.complaints.filter((it) => !/status of 40[0-9]/.test(it));
  wrong.push(...complaints.map((it) => `${theme}: ${it}`));
  await page.context().close();
  return wrong;
}

test("each page is sound in both themes and at three widths, whatever the texts in it", async () => {
  const addresses = await reached();
  const kinds = new Set(addresses.values());
  console.log(`${addresses.size} addresses of ${kinds.size} kinds: ${[...kinds].join(" ")}`);
  for (const expected of ["/", "/runs", "/runs/ID", "/runs/ID?view=timeline", "/runs/ID/steps/ID", "/runs/ID/fan-outs/ID",
    "/runs/ID/cancel", "/halted", "/waiting", "/pipelines", "/pipelines/NAME", "/pipelines/NAME/trigger", "/processes",
    "/actions", "/trust", "/bulk/new?verb=cancel", "/webhooks", "/sign-in"]) {
    assert.ok(kinds.has(expected), `no link leads to ${expected}`);
  }
  if (PICTURES) await mkdir(PICTURES, { recursive: true });
  // Each theme has its own session, and so its own process of the browser: both are looked at at once.
  const wrong = await Promise.all(THEMES.map((theme) => wrongIn(theme, addresses)));
  assert.deepEqual(wrong.flat(), []);
});
