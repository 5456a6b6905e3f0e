"""Makes other queues do what `leasehold bench` does, on the same server, in the same interleaved rounds.

    python3 benches/peers/run.py --peers leasehold,graphile-worker --ops drain --rounds 3

Prints a table; the README beside this file says how to read it. Every measurement is kept as a JSON object on
a line of a file, whose name is told; `--report FILE` prints the table of such a file again.
"""

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

import report
from server import Server, ThrowAway

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "leasehold-peers")

# Drivers built in rust/, by peer. `prototype` and `limit` are no queues: see the README.
RUST = {"graphile-worker-rs": "peer-graphile-worker", "pgmq": "peer-pgmq", "prototype": "prototype"}
PEERS = ["leasehold", "graphile-worker", "graphile-worker-rs", "pgmq", "prototype", "limit"]
OPERATIONS = ["drain", "enqueue", "single", "latency", "backlog", "pinned"]
# What each of the limit's clients is doing is one statement, so its only operation is to drain.
LIMIT_OPERATIONS = ["drain", "backlog"]
# Where a driver has not come to its end it never will: more than the longest that any takes.
PATIENCE_SECONDS = 1_800


def parse():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--peers", default=",".join(PEERS), help="the first is what the others are compared with (%(default)s)")
    a.add_argument("--ops", default="drain,enqueue,single,latency", help=f"of {', '.join(OPERATIONS)} (%(default)s)")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--items", type=int, default=100_000, help="to drain and to enqueue in bulk (%(default)s)")
    a.add_argument("--singles", type=int, default=1_000, help="to enqueue one at a time (%(default)s)")
    a.add_argument("--pickups", type=int, default=200, help="to measure the latency with (%(default)s)")
    a.add_argument("--backlog", type=int, default=1_000_000, help="pending besides those of `backlog` (%(default)s)")
    a.add_argument("--seconds", type=int, default=180, help="of `pinned` (%(default)s)")
    a.add_argument("--batch", type=int, default=500, help="of the prototype and the limit (%(default)s)")
    a.add_argument("--pg", metavar="URL", help="a server, without a database, instead of a throw-away one")
    a.add_argument("--leasehold", metavar="[NAME=]PATH", action="append", default=[],
                   help="a built `leasehold` instead of this checkout's; with names, several are peers side by side")
    a.add_argument("--node", default="node", help="which Node.js runs its peers (%(default)s)")
    a.add_argument("--cache", default=CACHE, help="where packages are installed and drivers built (%(default)s)")
    a.add_argument("--out", metavar="FILE", help="where the measurements are added to")
    a.add_argument("--report", metavar="FILE", help="measure nothing: print the table of that file")
    arguments = a.parse_args()
    arguments.peers = arguments.peers.split(",")
    arguments.ops = arguments.ops.split(",")
    named = [given.rpartition("=") for given in arguments.leasehold]
    arguments.leasehold = {name or "leasehold": path for name, _, path in named}
    for name in arguments.peers:
        if name not in PEERS and name not in arguments.leasehold:
            a.error(f"no peer is called {name}: one of {', '.join(PEERS)}")
    for name in arguments.ops:
        if name not in OPERATIONS:
            a.error(f"no operation is called {name}: one of {', '.join(OPERATIONS)}")
    return arguments


def say(text):
    print(text, file=sys.stderr, flush=True)


def build(arguments):
    """Builds or installs what the peers need; answers how each is started."""
    commands = {}
    os.makedirs(arguments.cache, exist_ok=True)
    if "leasehold" in arguments.peers and "leasehold" not in arguments.leasehold:
        say("building leasehold")
        arguments.leasehold["leasehold"] = cargo(REPOSITORY, ["-p", "leasehold-cli"])["leasehold"]
    for name, path in arguments.leasehold.items():
        commands[name] = [os.path.abspath(path)]
    if set(RUST) & set(arguments.peers):
        say("building the Rust peers")
        # All of them whatever is asked for: a part would have its libraries built again with other features.
        target = os.path.join(arguments.cache, "target")
        programs = cargo(os.path.join(HERE, "rust"), ["--target-dir", target])
        commands.update({name: [programs[binary]] for name, binary in RUST.items()})
    if "graphile-worker" in arguments.peers:
        folder = os.path.join(arguments.cache, "node")
        shutil.copytree(os.path.join(HERE, "node"), folder, dirs_exist_ok=True)
        say("installing graphile-worker")
        install = ["npm", "install", "--no-fund", "--no-audit", "--no-package-lock", "--loglevel=error"]
        subprocess.run(install, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        commands["graphile-worker"] = [arguments.node, os.path.join(folder, "graphile-worker.mjs")]
    return commands


def cargo(folder, arguments):
    """Builds in release mode; answers where each program is."""
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--message-format=json", *arguments]
    built = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    programs = [message.get("executable") for message in messages]
    return {os.path.basename(path): path for path in programs if path}


def drive(command, environment):
    """Runs a driver to its end; answers what it told, and the peak of its memory."""
    driver = subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = []
    # Read beside, so that a driver that says much does not wait for us.
    reader = threading.Thread(target=lambda: said.append(driver.stderr.read()))
    reader.start()
    timer = threading.Timer(PATIENCE_SECONDS, driver.kill)
    timer.start()
    try:
        line = driver.stdout.readline()
        peak = peak_mib(driver.pid)
        driver.stdout.read()
        driver.wait()
    finally:
        timer.cancel()
        driver.kill()
        reader.join()
    if driver.returncode or not line:
        raise RuntimeError(said[0].strip()[-600:] or f"it ended with {driver.returncode}")
    return json.loads(line), peak


def peak_mib(pid):
    """Of a process that still lives, in MiB."""
    try:
        with open(f"/proc/{pid}/status") as file:
            peak = next(line for line in file if line.startswith("VmHWM:"))
        return int(peak.split()[1]) / 1024
    except (OSError, StopIteration):
        return None


def peer_case(arguments, server, command, name, operation):
    database = "peer_" + name.replace("-", "_")
    environment = {"DATABASE_URL": server.fresh(database)}
    if name == "prototype":
        environment["BATCH"] = str(arguments.batch)

    def run(what, items=0):
        told = {"ITEMS": str(items), "SECONDS": str(arguments.seconds)}
        return drive([*command, what], {**environment, **told})

    run("setup")
    items = {"single": arguments.singles, "latency": arguments.pickups}.get(operation, arguments.items)
    if operation in ("drain", "backlog"):
        run("enqueue", items + (arguments.backlog if operation == "backlog" else 0))
        server.age(database)
    pin = server.pin(database) if operation == "pinned" else None
    before = spent(server)
    measured, peak = run({"backlog": "drain", "pinned": "sustain"}.get(operation, operation), items)
    after = spent(server)
    if pin:
        pin.communicate("")
    server.drop(database)
    series = measured.pop("series", [])
    measured["rss_peak_mib"] = peak
    if operation == "pinned":
        measured.update(ends(series))
    if operation == "latency":
        return measured
    return {**measured, **each(measured["items"], measured.pop("worker_cpu_seconds"), before, after)}


def limit_case(arguments, server, operation):
    """Plain SQL on the split layout: pgbench with two connections, one thread."""
    database, clients, batch = "peer_limit", 2, arguments.batch
    url = server.fresh(database)
    backlog = arguments.backlog if operation == "backlog" else 0
    server.psql(file=f"{HERE}/limits/split.schema.sql", database=database)
    server.psql(file=f"{HERE}/limits/split.fill.sql", database=database, items=arguments.items + backlog)
    server.age(database)
    # The last claims would be short.
    transactions = max(1, int(arguments.items * (1 if backlog else 0.95) / batch / clients))
    variables = {"batch": batch, "ids": "{}", "lease": 0, "priority": 0, "available_at": "2000-01-01", "id": 0}
    command = ["pgbench", "-n", "-M", "prepared", "-c", str(clients), "-j", "1", "-t", str(transactions)]
    for name, value in variables.items():
        command += ["-D", f"{name}={value}"]
    before, own = spent(server), children_cpu_seconds()
    ended = subprocess.run(
        [*command, "-f", f"{HERE}/limits/split.drain.sql", url], capture_output=True, text=True)
    own, after = children_cpu_seconds() - own, spent(server)
    rate = next((line for line in ended.stdout.splitlines() if line.startswith("tps = ")), None)
    if rate is None:
        raise RuntimeError(ended.stderr.strip()[-600:])
    server.drop(database)
    items = transactions * clients * batch
    per_second = float(rate.split()[2]) * batch
    told = {"items": items, "seconds": items / per_second, "per_second": per_second}
    return {**told, **each(items, own, before, after)}


def spent(server):
    return server.cpu_seconds(), server.wal_bytes()


def children_cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def each(items, worker_cpu_seconds, before, after):
    server = None if before[0] is None else (after[0] - before[0]) * 10_000 / items
    return {
        "worker_cpu_seconds_per_10_000": worker_cpu_seconds * 10_000 / items,
        "server_cpu_seconds_per_10_000": server,
        "wal_bytes_per_item": (after[1] - before[1]) / items,
    }


def ends(series):
    """The rate of the first and the last ten seconds, or of a third each where it was shorter."""
    settled = series[1:] or series  # The first second begins with nothing to do.
    width = max(1, min(10, len(settled) // 3))
    mean = lambda seconds: sum(seconds) / len(seconds)
    first, last = mean(settled[:width]), mean(settled[-width:])
    return {"first_per_second": first, "last_per_second": last, "last_to_first": last / first if first else None}


def leasehold_case(arguments, server, command, operation):
    """What the product's own bench says of itself, in a database of its own."""
    database = "peer_leasehold"
    url = server.fresh(database)
    items = {
        "single": ["--items", "1", "--singles", str(arguments.singles)],
        "latency": ["--singles", str(arguments.pickups)],
    }.get(operation, ["--items", str(arguments.items), "--singles", "1"])
    profile = {"single": "enqueue"}.get(operation, operation)
    more = {"backlog": ["--backlog", str(arguments.backlog)], "pinned": ["--seconds", str(arguments.seconds)]}
    bench = ["bench", "--postgres", url, "--profile", profile, "--rounds", "1", "--json"]
    measured, _ = drive([*command, *bench, *items, *more.get(operation, [])], {})
    server.drop(database)
    found = measured[profile]["median"]
    part = {"enqueue": "bulk", "single": "single", "backlog": "with"}.get(operation)
    if part:
        found = found[part]
    return {"items": arguments.items, "rss_peak_mib": measured["resident_peak_mib"], **found}


def measure(arguments, commands, server, out):
    about = {"kind": "run", "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "cores": os.cpu_count(),
             "server": server.settings(), "peers": versions(arguments, commands)}
    keep(out, about)
    failures = 0
    for number in range(arguments.rounds):
        for operation in arguments.ops:
            for name in arguments.peers:
                if name == "limit" and operation not in LIMIT_OPERATIONS:
                    continue
                case = {"kind": "case", "round": number, "op": operation, "peer": name, "load": os.getloadavg()[0]}
                try:
                    if name in arguments.leasehold:
                        found = leasehold_case(arguments, server, commands[name], operation)
                    elif name == "limit":
                        found = limit_case(arguments, server, operation)
                    else:
                        found = peer_case(arguments, server, commands[name], name, operation)
                except (RuntimeError, KeyError, ValueError) as error:
                    found, failures = {"error": str(error) or repr(error)}, failures + 1
                keep(out, {**case, **found})
                say(f"round {number + 1}: {operation} {name}: {report.summary(found)}")
    return failures


def versions(arguments, commands):
    found = {}
    for name in arguments.leasehold:
        told = subprocess.run([*commands[name], "--version"], capture_output=True, text=True)
        found[name] = told.stdout.strip()
    if "graphile-worker" in commands:
        node = subprocess.run([arguments.node, "--version"], capture_output=True, text=True).stdout.strip()
        with open(os.path.join(HERE, "node", "package.json")) as file:
            package = json.load(file)["dependencies"]["graphile-worker"]
        found["graphile-worker"] = f"{package} on Node.js {node}"
    return found


def keep(out, line):
    with open(out, "a") as file:
        file.write(json.dumps(line) + "\n")


def main():
    arguments = parse()
    if arguments.report:
        print(report.tables(arguments.report))
        return 0
    # As at an interrupt, so that the server is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    commands = build(arguments)
    results = os.path.join(arguments.cache, "results")
    os.makedirs(results, exist_ok=True)
    out = arguments.out or os.path.join(results, time.strftime("%Y%m%d-%H%M%S.jsonl", time.gmtime()))
    place = contextlib.nullcontext(Server(arguments.pg)) if arguments.pg else ThrowAway()
    with place as server:
        failures = measure(arguments, commands, server, out)
    print(report.tables(out))
    say(f"measurements: {out}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
