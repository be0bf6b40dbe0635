// The comparison itself; scripts/compare starts it once everything is installed, and passes
// everything in COMPARE_… variables.
//
// One program at a time is measured, in its own database, which is dropped afterwards whatever
// happens. Progress goes to stderr, the medians to stdout.

import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';

const env = (name) => process.env[`COMPARE_${name}`];
const cache = env('CACHE');
const pg = createRequire(path.join(cache, 'node/package.json'))('pg');

/** One measurement that takes longer than this, in milliseconds, is given up. */
const patience = 15 * 60_000;

/** How long, in milliseconds, a program has to clean up before it is killed. */
const grace = 20_000;

class Interrupted extends Error {}

// ---- What is compared ----------------------------------------------------------------------------

const workloads = ['chain', 'flat', 'latency'];
const columns = { chain: 'chain, steps/s', flat: 'flat, steps/s', latency: 'latency, p50 / p99 ms' };

/** Of runs of the chain; `ductworkd bench` has the same proportions. */
const counts = (runs) => ({ chain: runs, flat: runs * 10, latency: Math.ceil(runs / 10) });

const ductworkd = (setting, slots, { database = onServer } = {}) => ({
  name: 'ductworkd',
  setting,
  database,
  concurrency: slots ?? 'configured',
  async measure(workload, asked, url) {
    const name = workload === 'chain' ? 'chain5' : workload;
    const args = ['bench', name, '--json', '--runs', asked.runs, ...(slots ? ['--slots', slots] : [])];
    const report = JSON.parse(await output(env('DUCTWORKD'), args, { DUCTWORK_DATABASE_URL: url }));
    const value = (measure) => {
      const found = report.measures.find((m) => m.workload === name && m.name === measure);
      if (!found) throw new Error(`ductworkd bench told no "${measure}" of ${name}`);
      return found.value;
    };
    this.concurrency = report.slots;
    this.version = report.version;
    return workload === 'latency'
      ? { p50_ms: value('end to end, p50'), p99_ms: value('end to end, p99') }
      : { steps_per_second: value('worked') };
  },
});

/** `share`: of the runs whose throughput is measured, for those that would take minutes for all. */
const peer = (name, setting, version, concurrency, program, args, { only = workloads, share = 1, database = onServer } = {}) => ({
  name,
  setting,
  database,
  version,
  concurrency,
  only,
  async measure(workload, asked, url) {
    const count = counts(asked.runs)[workload];
    const all = [...args, workload, workload === 'latency' ? count : Math.ceil(count * share), concurrency];
    const text = await output(program, all, { COMPARE_DATABASE_URL: url, NO_LOG_SUCCESS: '1' });
    return JSON.parse(text.trim().split('\n').at(-1));
  },
});

function contestants(concurrency) {
  const package_ = (name) => JSON.parse(readFileSync(path.join(cache, 'node/node_modules', name, 'package.json'))).version;
  const lock = readFileSync(path.join(import.meta.dirname, 'rust/Cargo.lock'), 'utf8');
  const [, huey] = readFileSync(path.join(import.meta.dirname, 'python/requirements.txt'), 'utf8').match(/huey==(\S+)/);
  const crate = (name) => lock.match(new RegExp(`name = "${name}"\nversion = "([^"]+)"`))[1];
  const node = (name, setting, program, args) =>
    peer(name, setting, package_(name), concurrency, env('PEER_NODE'), ['--no-deprecation', path.join(cache, 'node', program), ...args]);
  const rust = (name, setting, args, limits) =>
    peer(name, setting, crate(name), concurrency, path.join(cache, 'rust/release/ductwork-compare'), [name, ...args], limits);
  return {
    ductworkd: ductworkd('as it comes'),
    'ductworkd-slots': ductworkd('slots as the others', concurrency),
    'graphile-worker': node('graphile-worker', 'as it comes', 'graphile.mjs', ['default']),
    'graphile-worker-batched': node('graphile-worker', 'local queue of 500, completions batched', 'graphile.mjs', ['batched']),
    graphile_worker: rust('graphile_worker', 'as it comes; a twentieth of the runs', ['default'], { share: 1 / 20 }),
    'graphile_worker-batched': rust('graphile_worker', 'local queue of 500, completions batched', ['batched']),
    dbos: node('@dbos-inc/dbos-sdk', 'workflows called directly', 'dbos.mjs', ['direct']),
    underway: rust('underway', 'as it comes', ['default'], { only: ['latency'] }),
    'ductworkd-sqlite': ductworkd('SQLite, as it comes', undefined, { database: inFile }),
    // More than one worker makes it slower.
    huey: peer('huey', 'SQLite, waits for the disk', huey, 1, path.join(cache, 'python/bin/python'),
      [path.join(import.meta.dirname, 'python/measure_huey.py')], { only: ['chain', 'flat'], database: inFile }),
  };
}

// ---- Programs ------------------------------------------------------------------------------------

let running;
let interrupted = false;

/** What a program prints. It is ended with all of its group when that takes too long, or on Ctrl-C. */
async function output(program, args, variables) {
  // An empty directory: no configuration is found there.
  const directory = mkdtempSync(path.join(os.tmpdir(), 'ductwork-compare-'));
  const kept = Object.entries(process.env).filter(([name]) => !/^(DUCTWORK|COMPARE)_/.test(name));
  // A process group of its own, so that a Ctrl-C at the terminal reaches it through this program,
  // and only once.
  const child = spawn(program, args.map(String), {
    cwd: directory,
    detached: true,
    env: { ...Object.fromEntries(kept), ...variables },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [out, err, late] = ['', '', false];
  child.stdout.setEncoding('utf8').on('data', (text) => (out += text));
  child.stderr.setEncoding('utf8').on('data', (text) => (err += text));
  const timer = setTimeout(() => ((late = true), end(child)), patience);
  running = child;
  try {
    const [code, signal] = await new Promise((resolve, reject) => {
      child.once('error', reject).once('close', (...how) => resolve(how));
    });
    if (interrupted) throw new Interrupted();
    if (late) throw new Error(`given up after ${patience / 60_000} minutes`);
    if (code !== 0) throw new Error(`${path.basename(program)} ended with ${signal ?? code}: ${err.trim().slice(-2000)}`);
    return out;
  } finally {
    clearTimeout(timer);
    running = undefined;
    rmSync(directory, { recursive: true, force: true });
  }
}

function end(child) {
  if (child.pid === undefined) return;
  const signal = (name) => {
    try {
      process.kill(-child.pid, name);
    } catch (error) {
      // It may have ended already.
      if (error.code !== 'ESRCH') throw error;
    }
  };
  signal('SIGTERM');
  const timer = setTimeout(() => signal('SIGKILL'), grace);
  child.once('close', () => clearTimeout(timer));
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(signal, () => {
    interrupted = true;
    if (running) end(running);
  });
}

// ---- Databases -----------------------------------------------------------------------------------

async function withServer(work) {
  const client = new pg.Client({ connectionString: env('SERVER') });
  await client.connect();
  try {
    return await work(async (text) => (await client.query(text)).rows);
  } finally {
    await client.end();
  }
}

let databases = 0;

/** Calls `work` with the URL of a new database on the server, and drops it. */
async function onServer(work) {
  const name = `ductwork_compare_${process.pid}_${(databases += 1)}`;
  await withServer((query) => query(`create database ${name}`));
  try {
    const url = new URL(env('SERVER'));
    url.pathname = `/${name}`;
    return await work(url.href);
  } finally {
    // The server writes everything back for this, so no program pays for the writes of another.
    await withServer((query) => query(`drop database ${name} with (force)`));
  }
}

/** Calls `work` with the URL of a new SQLite database, and removes it. */
async function inFile(work) {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'ductwork-compare-'));
  try {
    return await work(`sqlite://${directory}/compare.db`);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

async function server() {
  const names = ['server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_connections'];
  const rows = await withServer((query) => query(`select name, current_setting(name) as value from pg_settings where name in ('${names.join("', '")}')`));
  return Object.fromEntries(rows.map(({ name, value }) => [name, value]));
}

// ---- Reports -------------------------------------------------------------------------------------

function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const half = sorted.length / 2;
  return sorted.length % 2 ? sorted[Math.floor(half)] : (sorted[half - 1] + sorted[half]) / 2;
}

/** Three digits that mean something. */
const number = (value) => Number(value.toPrecision(3)).toLocaleString('en', { maximumFractionDigits: 2 });

function cell(measured) {
  if (measured === undefined) return '–';
  if (measured.median === undefined) return 'failed';
  const { steps_per_second: rate, p50_ms: p50, p99_ms: p99 } = measured.median;
  return rate === undefined ? `${number(p50)} / ${number(p99)}` : number(rate);
}

/** The heading and the rows of the table. */
function table(report) {
  const head = ['', 'setting', 'at once', ...workloads.map((workload) => columns[workload])];
  const rows = report.rows.map((row) => [
    `${row.name} ${row.version ?? ''}`.trim(),
    row.setting,
    String(row.concurrency),
    ...workloads.map((workload) => cell(row.workloads[workload])),
  ]);
  return [head, ...rows];
}

function circumstances({ machine, postgres, programs, rounds, runs, date }) {
  const { server_version, ...settings } = postgres;
  const told = Object.entries(settings).map(([name, value]) => `${name} ${value}`);
  return [
    `${date}; ${machine.cpu}, ${machine.cores} cores, ${machine.memory_gib} GiB, ${machine.system}; load ${machine.load_before} before and ${machine.load_after} after.`,
    `PostgreSQL ${server_version} on ${machine.server}; ${told.join(', ')}. ${programs}.`,
    `Medians of ${rounds} rounds; chain: ${counts(runs).chain} runs of five steps, flat: ${counts(runs).flat} of one, latency: ${counts(runs).latency} of five, one at a time.`,
  ];
}

const formats = {
  json: (report) => JSON.stringify(report, null, 2),
  markdown(report) {
    const [head, ...rows] = table(report);
    const line = (cells) => `| ${cells.join(' | ')} |`;
    const rule = head.map((_, column) => (column < 2 ? '---' : '---:'));
    return [...circumstances(report), '', line(head), `|${rule.join('|')}|`, ...rows.map(line)].join('\n');
  },
  text(report) {
    const all = table(report);
    const widths = all[0].map((_, column) => Math.max(...all.map((row) => row[column].length)));
    const line = (row) => row.map((text, column) => (column < 2 ? text.padEnd(widths[column]) : text.padStart(widths[column]))).join('  ');
    return [...circumstances(report), '', ...all.map((row) => line(row).trimEnd())].join('\n');
  },
};

// ---- The comparison ------------------------------------------------------------------------------

const load = () => os.loadavg()[0].toFixed(1);

async function main() {
  const options = { rounds: '3', runs: '2000', concurrency: '10', only: '', json: false, markdown: false };
  const types = Object.entries(options).map(([name, value]) => [name, { type: typeof value, default: value }]);
  const { values } = parseArgs({ options: Object.fromEntries(types) });
  const asked = {};
  for (const name of ['rounds', 'runs', 'concurrency']) asked[name] = Number(values[name]);
  const known = contestants(asked.concurrency);
  const names = values.only ? values.only.split(',') : Object.keys(known);
  const strange = names.find((name) => !known[name]);
  if (strange) {
    console.error(`scripts/compare: there is no ${strange} to measure; there are: ${Object.keys(known).join(', ')}`);
    return 2;
  }

  const postgres = await server();
  const loadBefore = load();
  const measured = names.map(() => ({}));
  let failures = 0;
  for (let round = 1; round <= asked.rounds; round++) {
    for (const workload of workloads) {
      for (const [index, name] of names.entries()) {
        if (known[name].only && !known[name].only.includes(workload)) continue;
        const told = (text) => console.error(`${round}/${asked.rounds} ${workload.padEnd(7)} ${name.padEnd(23)} ${text}`);
        const values = (measured[index][workload] ??= []);
        try {
          const value = await known[name].database((url) => known[name].measure(workload, asked, url));
          values.push(value);
          told(cell({ median: value }));
        } catch (error) {
          if (interrupted) throw new Interrupted();
          failures += 1;
          told(`failed: ${error.message}`);
        }
        if (interrupted) throw new Interrupted();
      }
    }
  }

  const rows = names.map((name, index) => {
    const of = Object.entries(measured[index]).map(([workload, values]) => {
      const kinds = Object.keys(values[0] ?? {}).map((kind) => [kind, median(values.map((value) => value[kind]))]);
      return [workload, { median: values.length ? Object.fromEntries(kinds) : undefined, rounds: values }];
    });
    const { name: program, setting, version, concurrency } = known[name];
    return { name: program, setting, version, concurrency, workloads: Object.fromEntries(of) };
  });
  const host = new URL(env('SERVER')).hostname;
  const machine = {
    cpu: os.cpus()[0]?.model.trim() ?? 'unknown processor',
    cores: os.availableParallelism(),
    memory_gib: Math.round(os.totalmem() / 2 ** 30),
    system: `${os.type()} ${os.release()} ${os.arch()}`,
    server: ['', 'localhost', '127.0.0.1', '[::1]'].includes(host) ? 'the same machine' : 'another machine',
    load_before: loadBefore,
    load_after: load(),
  };
  const first = (program) => execFileSync(program, ['--version'], { encoding: 'utf8' }).trim().split(' (')[0];
  const programs = `Node.js ${first(env('PEER_NODE'))}, ${first('rustc')}`;
  const report = { date: new Date().toISOString().slice(0, 10), machine, postgres, programs, ...asked, rows };
  console.log(formats[values.json ? 'json' : values.markdown ? 'markdown' : 'text'](report));
  return failures > 0 ? 1 : 0;
}

try {
  process.exitCode = await main();
} catch (error) {
  if (!interrupted) throw error;
  console.error('scripts/compare: interrupted; nothing was left behind');
  process.exitCode = 130;
}
