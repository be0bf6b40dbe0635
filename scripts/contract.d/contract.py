"""The work of scripts/contract: a daemon of its own on each database, a world for it, and schemathesis over that."""

import contextlib
import ctypes
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
import uuid
from pathlib import Path

SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
ARGUMENTS = sys.argv[1:]
HERE = Path(__file__).resolve().parent
PROGRAM = os.environ["DUCTWORKD"]
SERVER = os.environ.get("DUCTWORK_TEST_POSTGRES_URL")
POSTGRES = os.environ.get("DUCTWORK_TEST_POSTGRES_BIN")

# The time limit of a wait, in seconds.
PATIENCE = 60
# The tokens take turns, so that no request is put off: schemathesis sends at most some 700 requests a second.
TOKENS = 32
# The time limit of the whole program, in seconds, and the part at its end for cleaning up.
SECONDS = int(os.environ.get("CONTRACT_SECONDS", "900"))
CLEANING_UP = 40
BEGAN = time.monotonic()

# A random bulk action may end, or revive, every run of the world: bulk actions come last.
ROUNDS = [["--exclude-path-regex=^/api/v1/bulk"], ["--include-path-regex=^/api/v1/bulk"]]

PIPELINES = {
    "Plain": "steps: { A: { command: [cat] } }\nflow: [{ start: A }]\n",
    "Asked": "input:\n  type: object\n  required: [name]\n  properties:\n    name: { type: string, minLength: 1 }\n"
    "    count: { type: integer, minimum: 1 }\nsteps: { A: { command: [cat] } }\nflow: [{ start: A }]\n",
    "Asks": "steps: { A: { command: [cat] }, B: { command: [cat] } }\nflow: [{ start: A }, dampen, { chain: B }]\n",
    "Halts": "steps: { Fail: { command: [sh, -c, 'echo no luck >&2; exit 1'], max_retry: 0 } }\n"
    "flow: [{ start: Fail }]\n",
    "Fans": "steps:\n  List: { command: [cat] }\n"
    "  Each: { command: [sh, -c, 'read n; test $n != 7 && echo $n'], max_retry: 0 }\n  All: { command: [cat] }\n"
    "flow: [{ start: List }, { expand: Each }, { collapse: All }]\n",
    "Waits": "steps: { Wait: { command: [sleep, '3600'] } }\nflow: [{ start: Wait }]\n",
    "Paused": "steps: { A: { command: [cat] } }\nflow: [{ start: A }]\n",
}


def with_parent():
    """Ends a child when this process is killed, which nothing else would notice."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def eventually(what, is_true):
    until = time.monotonic() + PATIENCE
    while not (value := is_true()):
        if time.monotonic() > until:
            raise SystemExit(f"scripts/contract: not within {PATIENCE} s: {what}")
        time.sleep(0.05)
    return value


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def psql(statement):
    subprocess.run([f"{POSTGRES}/psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", SERVER, "-c", statement],
                   check=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def sqlite(directory):
    yield f"sqlite://{directory}/ductwork.db"


@contextlib.contextmanager
def postgres(_directory):
    """A schema of its own, as the tests in Rust have it."""
    schema = f"contract_{uuid.uuid4().hex}"
    psql(f"CREATE SCHEMA {schema}")
    try:
        mark = "&" if "?" in SERVER else "?"
        yield f"{SERVER}{mark}options=-c%20search_path%3D{schema}%20-c%20synchronous_commit%3Doff"
    finally:
        psql(f"SET client_min_messages = warning; DROP SCHEMA {schema} CASCADE")


class Daemon:
    """A daemon with a console, which knows its visitors, in this directory."""

    def __init__(self, directory, database):
        self.directory = directory
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
        # Nobody listens on the port of the webhook endpoint: messages wait to be sent.
        (directory / "ductwork.yml").write_text(
            f"""default:
  database: {{ url: "{database}" }}
  console:
    listen: "127.0.0.1:{port}"
    visitors: known
    webhooks: [{{ name: shop, url: "http://127.0.0.1:9/", secret: "{secret}" }}]
  supervisor: {{ polling_timeout: 50ms, shutdown_timeout: 5 }}
  pipeline_advancer: {{ shutdown_timeout: 1 }}
  job_worker: {{ shutdown_timeout: 1 }}
""")
        (directory / "pipelines").mkdir()
        for name, text in PIPELINES.items():
            (directory / "pipelines" / f"{name.lower()}.yml").write_text(f"pipeline: {name}\n{text}")
        self.log = directory / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([PROGRAM, "start"], cwd=directory, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, preexec_fn=with_parent)

    def await_ready(self):
        def is_ready():
            if self.process.poll() is not None:
                raise SystemExit(f"scripts/contract: the daemon has ended:\n{self.log.read_text()}")
            text = self.log.read_text()
            return "the console listens" in text and '"msg":"ready"' in text

        eventually("the daemon is ready", is_ready)
        # Some of them see no payloads, in the same forms.
        self.tokens = [self.say("token", "create", f"contract {n}", "--scope", "admin", *([] if n % 8 < 7 else ["--no-payloads"]))
                       for n in range(TOKENS)]
        # A token may make 50 requests a second, and an idle machine makes more.
        self.turns = itertools.cycle(self.tokens)

    def say(self, *verb):
        """The output of a verb."""
        done = subprocess.run([PROGRAM, *verb], cwd=self.directory, stdin=subprocess.DEVNULL, timeout=PATIENCE,
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"scripts/contract: ductworkd {' '.join(verb)}: {done.stderr}")
        return done.stdout.strip()

    def ask(self, path, body=None):
        """An answer of the API; with a body, to a POST."""
        request = urllib.request.Request(f"{self.url}/api/v1{path}", headers={"Authorization": f"Bearer {next(self.turns)}"})
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def world(daemon):
    """Makes runs in every status, and everything else that the API tells of; real values of parameters, by name."""
    trigger = lambda pipeline, text, *more: daemon.say("trigger", pipeline, text, *more)
    daemon.say("pause", "Paused", "--reason", "the contract is tried")
    runs = {
        "completed": [trigger("Plain", '{"a": 1}', "--key", "order 4711"), trigger("Fans", "[1, 2, 3]"),
                      trigger("Asked", '{"name": "Ada"}')],
        "dampened": [trigger("Asks", str(n)) for n in range(12)],
        "halted": [*(trigger("Halts", str(n)) for n in range(8)), trigger("Fans", "[6, 7, 8]")],
        "in_progress": [*(trigger("Waits", "1") for _ in range(3)), trigger("Plain", "1", "--delay", "1h"),
                        trigger("Paused", "1")],
        "cancelled": [trigger("Waits", "2")],
    }
    daemon.say("cancel", *runs["cancelled"])
    for status, ids in runs.items():
        for run in ids:
            eventually(f"{run} is {status}", lambda: daemon.ask(f"/runs/{run}")["status"] == status)
    revived = daemon.ask(f"/runs/{runs['halted'].pop(0)}/revive", {})["run_id"]
    bulk = daemon.ask("/bulk", {"verb": "revive", "runs": runs["halted"][:2]})["id"]
    eventually("the bulk action has ended", lambda: daemon.ask(f"/bulk/{bulk}")["state"] != "open")
    daemon.say("audit")
    eventually("messages wait", lambda: len(daemon.ask("/webhooks")) > 5)

    fan = runs["completed"][1]
    steps = daemon.ask(f"/runs/{fan}/steps")
    return {
        "path.id": [run for ids in runs.values() for run in ids] + [revived],
        "path.name": list(PIPELINES),
        "path.step": [step["id"] for step in steps],
        "path.fan_out": [it["id"] for it in daemon.ask(f"/runs/{fan}/fan-outs")],
        "path.bulk": [bulk],
        "path.digest": [it["definition"] for it in daemon.ask("/pipelines") if it["definition"]],
        "path.delivery": [it["id"] for it in daemon.ask("/webhooks")],
        "query.pipeline": list(PIPELINES),
        "query.run": [fan, revived],
        "fans": [fan],
        "dampened": runs["dampened"],
        "halted": runs["halted"],
        "in_progress": runs["in_progress"],
        "executions": [execution["id"] for step in steps for execution in step["executions"]],
    }


# Ids for paths that would refuse most runs: path and dictionary.
OWN_IDS = {
    "/api/v1/executions/{id}/log": "executions",
    "/api/v1/runs/{id}/steps/{step}": "fans",
    "/api/v1/runs/{id}/fan-outs/{fan_out}/elements": "fans",
    "/api/v1/runs/{id}/cancel": "in_progress",
    "/api/v1/runs/{id}/resume": "dampened",
    "/api/v1/runs/{id}/revive": "halted",
}


def drawn(name):
    """Most values are of this dictionary, and some are others."""
    return f'{{ dictionary = "{name}", probability = 0.8 }}'


def configuration(daemon, values):
    """The configuration of schemathesis, as TOML: strings and lists are written as in JSON."""
    lines = [
        f"base-url = {json.dumps(daemon.url)}",
        f"hooks = {json.dumps(str(HERE / 'hooks.py'))}",
        "seed = 4711",
        "request-timeout = 10",
        "continue-on-failure = true",
        # Earlier runs of this program do not change the requests.
        "[cache]",
        "enabled = false",
        # An operation without any object in the world would go unchecked.
        "[warnings]",
        'fail-on = ["missing_test_data", "validation_mismatch"]',
        # The only DELETE stops a bulk action, and leaves the record of its work.
        "[checks.use_after_free]",
        "enabled = false",
        # hooks.py counts late answers.
        "[checks.not_a_server_error]",
        'expected-statuses = ["2xx", "3xx", "4xx", "503"]',
        "[generation]",
        "max-examples = 25",
        'database = "none"',
        "[phases.stateful]",
        "max-steps = 5",
    ]
    for name, entries in values.items():
        lines += [f'[dictionaries."{name}"]', f"values = {json.dumps(entries)}"]
    lines.append("[parameters]")
    lines += [f'"{name}" = {drawn(name)}' for name in values if "." in name]
    for path, name in OWN_IDS.items():
        lines += ["[[operations]]", f"include-path = {json.dumps(path)}", f'parameters = {{ "path.id" = {drawn(name)} }}']
    lines += [
        # A stream has no end. Refused requests have one.
        "[[operations]]",
        'include-path = "/api/v1/events"',
        'generation = { mode = "negative" }',
        "warnings = false",
        # Each pipeline refuses inputs that do not match its schema, which no description of the route can express.
        "[[operations]]",
        'include-path = "/api/v1/pipelines/{name}/runs"',
        "warnings = false",
        # Chosen runs must exist.
        "[[operations]]",
        'include-path = "/api/v1/bulk"',
        "warnings = false",
    ]
    return "\n".join(lines) + "\n"


def asked(daemon, arguments):
    """True when schemathesis, with these arguments, finds nothing."""
    rest = SECONDS - CLEANING_UP - (time.monotonic() - BEGAN)
    try:
        done = subprocess.run(
            [SCHEMATHESIS, "--config-file", "schemathesis.toml", "run", "--no-color", *arguments, "openapi.json"],
            env=os.environ | {"CONTRACT_TOKENS": " ".join(daemon.tokens), "PYTHONDONTWRITEBYTECODE": "1"}, cwd=daemon.directory,
            stdin=subprocess.DEVNULL, timeout=max(rest, 1), preexec_fn=with_parent)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"scripts/contract: not all was sent within {SECONDS} s; CONTRACT_SECONDS is more") from None
    if daemon.process.poll() is not None:
        raise SystemExit(f"scripts/contract: the daemon has ended:\n{daemon.log.read_text()}")
    return done.returncode == 0


def keeps_to_it(kind, database, directory):
    """True when the console on this database keeps to its description."""
    with database(directory) as url:
        daemon = Daemon(directory, url)
        try:
            daemon.await_ready()
            (directory / "schemathesis.toml").write_text(configuration(daemon, world(daemon)))
            # schemathesis itself has no token for the description.
            (directory / "openapi.json").write_text(json.dumps(daemon.ask("/openapi.json")))
            results = []
            is_chosen = any(it.startswith(("--include-", "--exclude-")) for it in ARGUMENTS)
            for arguments in [ARGUMENTS] if is_chosen else [[*it, *ARGUMENTS] for it in ROUNDS]:
                print(f"-- the API on {kind} {' '.join(arguments)}", flush=True)
                results.append(asked(daemon, arguments))
            return all(results)
        finally:
            daemon.stop()


def main():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    # No proxy is used for this host itself.
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"
    databases = {"SQLite": sqlite} | ({"PostgreSQL": postgres} if SERVER else {})
    results = []
    for kind, database in databases.items():
        with tempfile.TemporaryDirectory(prefix="ductwork-contract.") as directory:
            results.append(keeps_to_it(kind, database, Path(directory)))
    sys.exit(0 if all(results) else 1)


main()
