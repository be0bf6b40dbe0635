// DBOS Transact. A run is a workflow; each of its steps is recorded before the next one begins.
//
// Workflows are called, not taken from a queue: that is faster, because no dispatcher polls. So the
// time that it takes to record a new run is part of the throughput.

import { setTimeout as sleep } from 'node:timers/promises';
import { DBOS } from '@dbos-inc/dbos-sdk';
import { concurrency, pause, percentiles, rate, report, runs, steps, url, warmUp, workload } from './measure.mjs';

const run = DBOS.registerWorkflow(
  async () => {
    for (let step = 0; step < steps; step++) await DBOS.runStep(async () => {}, { name: 'step' });
  },
  { name: 'steps' },
);

/** Calls the workflow again and again, so that as many as may are under way; returns when all are recorded. */
async function work(runs) {
  const began = performance.now();
  let left = runs;
  const lane = async () => {
    while (left-- > 0) await run();
  };
  await Promise.all(Array.from({ length: concurrency }, lane));
  return rate(runs, began, performance.now());
}

/** One run at a time; a call returns when the run is recorded as completed. */
async function latencies() {
  const times = [];
  for (let at = -warmUp; at < runs; at++) {
    await sleep(pause);
    const began = performance.now();
    await run();
    if (at >= 0) times.push(performance.now() - began);
  }
  return times;
}

DBOS.setConfig({
  name: 'compare',
  systemDatabaseUrl: url,
  systemDatabasePoolSize: Math.max(10, concurrency + 1),
  logLevel: 'error',
});
await DBOS.launch();
if (workload === 'latency') {
  report(percentiles(await latencies()));
} else {
  await work(warmUp);
  report(await work(runs));
}
await DBOS.shutdown();
