// graphile-worker. It has no chains: a job enqueues the next one before it is completed, as its users
// do.

import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import { concurrency, connect, latencies, percentiles, rate, report, runs, setting, steps, until, url, warmUp, workload } from './measure.mjs';

const settings = {
  default: {},
  // The settings that its documentation and its own benchmark recommend for throughput. Nothing is
  // lost by them: a crash makes jobs run again that were already done.
  batched: { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 },
};

let began;
let left;
let finished;

const preset = {
  worker: {
    connectionString: url,
    concurrentJobs: concurrency,
    maxPoolSize: Math.max(10, concurrency + 1),
    logger: new Logger(() => (level, message) => level === 'error' && console.error(message)),
    ...settings[setting],
  },
};

const taskList = {
  async step(payload, worker) {
    began ??= performance.now();
    if (payload.left > 1) await worker.addJob('step', { left: payload.left - 1 });
    else if (--left === 0) finished();
  },
};

const jobs = 'select 1 from graphile_worker._private_jobs limit 1';

/** Queues runs, then works them off; returns when the database has none left. */
async function work(client, utils, runs) {
  const batch = 1000;
  for (let at = 0; at < runs; at += batch) {
    const some = Array.from({ length: Math.min(batch, runs - at) }, () => ({ identifier: 'step', payload: { left: steps } }));
    await utils.addJobs(some);
  }
  await client.query('analyze graphile_worker._private_jobs');
  [began, left] = [undefined, runs];
  const all = new Promise((resolve) => (finished = resolve));
  const runner = await run({ preset, taskList, noHandleSignals: true });
  await all;
  await until(client, jobs);
  const ended = performance.now();
  await runner.stop();
  return rate(runs, began, ended);
}

const client = await connect();
const utils = await makeWorkerUtils({ preset });
await utils.migrate();
if (workload === 'latency') {
  [left, finished] = [Infinity, () => {}];
  const runner = await run({ preset, taskList, noHandleSignals: true });
  const trigger = `select from graphile_worker.add_job('step', '{"left": ${steps}}'::json)`;
  report(percentiles(await latencies(trigger, jobs)));
  await runner.stop();
} else {
  await work(client, utils, warmUp);
  report(await work(client, utils, runs));
}
await utils.release();
await client.end();
