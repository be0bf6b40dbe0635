"""huey, on SQLite. Its pipelines: a task that has ended puts the next one into the queue.

Called with WORKLOAD RUNS WORKERS and COMPARE_DATABASE_URL (sqlite:///…); prints one line of JSON:
{"steps_per_second"}.
"""

import json
import logging
import math
import os
import sys
import threading
import time

from huey import SqliteHuey

workload, runs, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
steps = 1 if workload == "flat" else 5
file = os.environ["COMPARE_DATABASE_URL"].removeprefix("sqlite://")

# By default it does not wait for the disk.
huey = SqliteHuey(filename=file, fsync=True)
# It would log a line per task otherwise.
logging.getLogger("huey").setLevel(logging.ERROR)

began = None
left = 0
counted = threading.Lock()
finished = threading.Event()


@huey.task()
def step(*, last):
    global began, left
    with counted:
        began = began or time.perf_counter()
        left -= last
        if left == 0:
            finished.set()


def work(count):
    """Queues runs, then works them off; steps per second until the database has none left."""
    global began, left
    for _ in range(count):
        run = step.s(last=steps == 1)
        for at in range(1, steps):
            run = run.then(step, last=at == steps - 1)
        huey.enqueue(run)
    began, left = None, count
    finished.clear()
    consumer = huey.create_consumer(workers=workers, periodic=False)
    consumer.start()
    finished.wait()
    while huey.pending_count() > 0:
        time.sleep(0.001)
    ended = time.perf_counter()
    consumer.stop(graceful=True)
    return count * steps / (ended - began)


work(math.ceil(runs / 10))
print(json.dumps({"steps_per_second": work(runs)}))
