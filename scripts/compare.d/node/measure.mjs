// The parts that every peer on Node.js needs for its measurement: its arguments, a client,
// percentiles.
//
// A peer is called with SETTING WORKLOAD RUNS CONCURRENCY and COMPARE_DATABASE_URL, and prints one
// line of JSON: {"steps_per_second"} or {"p50_ms", "p99_ms"}.

import { setTimeout as sleep } from 'node:timers/promises';
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';
import pg from 'pg';

export const url = process.env.COMPARE_DATABASE_URL;
export const [setting, workload, ...rest] = process.argv.slice(2);
export const [runs, concurrency] = rest.map(Number);

/** Steps of each run. */
export const steps = workload === 'flat' ? 1 : 5;

/** Runs before the measured ones, so that code is compiled, connections open, statements prepared. */
export const warmUp = workload === 'latency' ? 10 : Math.ceil(runs / 10);

/** Between two runs of the latency workload, so that each finds an idle system; `ductworkd bench` has the same. */
export const pause = 10;

/** One run at a time without progress for this long, in milliseconds, is stuck. */
const patience = 60_000;

export function rate(runs, began, ended) {
  return { steps_per_second: (runs * steps * 1000) / (ended - began) };
}

/** The smallest of the times that the fraction of them does not exceed. */
function percentile(sorted, fraction) {
  return sorted[Math.max(Math.ceil(sorted.length * fraction) - 1, 0)];
}

export function percentiles(times) {
  const sorted = times.toSorted((a, b) => a - b);
  return { p50_ms: percentile(sorted, 0.5), p99_ms: percentile(sorted, 0.99) };
}

export function report(result) {
  console.log(JSON.stringify(result));
}

export async function connect() {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  return client;
}

/** Returns when the statement returns no row any more. */
export async function until(client, statement, look = 1) {
  while ((await client.query(statement)).rowCount > 0) await sleep(look);
}

/**
 * One run at a time, by a client in a thread of its own, so that looking does not stop the worker:
 * `trigger` starts a run, and `open` returns a row as long as it is not completed in the database.
 */
export async function latencies(trigger, open) {
  const thread = new Worker(new URL(import.meta.url), { workerData: { trigger, open, warmUp, runs, pause } });
  return await new Promise((resolve, reject) => thread.once('message', resolve).once('error', reject));
}

if (!isMainThread && workerData?.trigger) {
  const { trigger, open, warmUp, runs, pause } = workerData;
  const client = await connect();
  const named = (name, text) => ({ name, text });
  const short = new Int32Array(new SharedArrayBuffer(4));
  const times = [];
  for (let run = -warmUp; run < runs; run++) {
    await sleep(pause);
    const began = performance.now();
    await client.query(named('trigger', trigger));
    while ((await client.query(named('open', open))).rowCount > 0) {
      if (performance.now() - began > patience) throw new Error('a run was not completed within a minute');
      // Timers are too coarse: this waits a tenth of a millisecond, like the client of `ductworkd
      // bench`.
      Atomics.wait(short, 0, 0, 0.1);
    }
    if (run >= 0) times.push(performance.now() - began);
  }
  await client.end();
  parentPort.postMessage(times);
}
