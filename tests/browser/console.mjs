// A daemon with a console, and a browser that visits it.
import { execFile, spawn } from "node:child_process";
import { mkdtemp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test as unbounded } from "node:test";
import { promisify } from "node:util";

const tools = createRequire(join(process.env.BROWSER_TOOLS, "package.json"));
const { chromium } = tools("playwright-core");
const axe = await readFile(tools.resolve("axe-core/axe.min.js"), "utf8");
const run = promisify(execFile);
const program = process.env.DUCTWORKD;

// The time limit of a wait.
export const PATIENCE = 30_000;

// A test with a time limit: without one, a browser that hangs would be waited for forever.
export const test = (name, body) => unbounded(name, { timeout: 400_000 }, body);

export async function eventually(what, isTrue) {
  const until = Date.now() + PATIENCE;
  for (;;) {
    const value = await isTrue();
    if (value) return value;
    if (Date.now() > until) throw new Error(`not within ${PATIENCE} ms: ${what}`);
    await new Promise((next) => setTimeout(next, 20));
  }
}

async function freePort() {
  const server = createServer();
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address();
  await new Promise((closed) => server.close(closed));
  return port;
}

export class Daemon {
  // A daemon with these pipelines, by file name, in its own directory, with additional keys of
  // `console`.
  static async start(pipelines, keys = "") {
    const daemon = new Daemon();
    daemon.dir = await mkdtemp(join(tmpdir(), "ductwork-browser."));
    daemon.port = await freePort();
    daemon.url = `http://127.0.0.1:${daemon.port}`;
    await mkdir(join(daemon.dir, "pipelines"));
    await writeFile(join(daemon.dir, "ductwork.yml"), `default:
  database: { url: "sqlite://${daemon.dir}/ductwork.db" }
  console: { listen: "127.0.0.1:${daemon.port}"${keys && `, ${keys}`} }
  supervisor: { polling_timeout: 50ms }
`);
    for (const [name, text] of Object.entries(pipelines)) {
      await writeFile(join(daemon.dir, "pipelines", name), text);
    }
    await daemon.again();
    return daemon;
  }

  // Starts it, for the first time or again.
  async again() {
    this.process = spawn(program, ["start"], { cwd: this.dir, stdio: ["ignore", "ignore", "pipe"] });
    this.ended = new Promise((ended) => this.process.once("exit", ended));
    process.once("exit", () => this.process.kill("SIGTERM"));
    const lines = [];
    createInterface({ input: this.process.stderr }).on("line", (line) => lines.push(line));
    this.log = lines;
    await eventually("the console listens", () => {
      if (this.process.exitCode !== null) throw new Error(lines.join("\n"));
      return lines.some((line) => line.includes("the console listens"))
        && lines.some((line) => line.includes('"msg":"ready"'));
    });
  }

  // The output of a verb.
  async say(...verb) {
    const { stdout } = await run(program, verb, { cwd: this.dir });
    return stdout.trim();
  }

  async stop() {
    this.process.kill("SIGTERM");
    await this.ended;
  }

  async remove() {
    await this.stop();
    await rm(this.dir, { recursive: true });
  }
}

export class Browser {
  static async start() {
    const browser = new Browser();
    browser.own = await chromium.launch({
      executablePath: process.env.CHROMIUM,
      args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync"],
    });
    return browser;
  }

  // A page in its own session, and all errors that it reports.
  async open(url, settings = {}) {
    const context = await this.own.newContext(settings);
    const page = await context.newPage();
    page.complaints = [];
    page.on("pageerror", (error) => page.complaints.push(String(error)));
    page.on("console", (message) => {
      if (message.type() === "error" && !message.text().includes("net::ERR_")) page.complaints.push(message.text());
    });
    await page.goto(url);
    return page;
  }

  // The process ends if the browser does not close, which kills the browser.
  async stop() {
    const hangs = setTimeout(() => {
      console.error("the browser does not close");
      process.exit(1);
    }, PATIENCE);
    await this.own.close();
    clearTimeout(hangs);
  }
}

// Violations of the machine-checkable rules, each with the elements concerned.
export async function violations(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run());
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ").slice(0, 300)}`);
}
