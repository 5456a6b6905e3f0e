"""The Postgres server that all peers share: a throw-away one, or one that somebody gives."""

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

# Enough connections and memory that neither is what is measured; what makes a commit durable is left alone.
SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
}
# What a reader must know of a server to compare two.
TOLD = ["server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_level", *SETTINGS]

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Server:
    """A server by its URL without a database. Its user must be allowed to make databases."""

    def __init__(self, url):
        self.url = url.rstrip("/")
        self.postmaster = self._postmaster()

    def psql(self, *statements, database="postgres", file=None, **variables):
        command = ["psql", "-qXAt", "-v", "ON_ERROR_STOP=1", self.database(database)]
        for name, value in variables.items():
            command += ["-v", f"{name}={value}"]
        for statement in statements:
            command += ["-c", statement]
        if file:
            command += ["-f", file]
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(ended.stderr.strip())
        return ended.stdout.strip()

    def database(self, name):
        return f"{self.url}/{name}"

    def fresh(self, name):
        """An empty database of that name, and its URL."""
        self.drop(name)
        self.psql(f"create database {name}")
        return self.database(name)

    def drop(self, name):
        self.psql(f"drop database if exists {name} with (force)")

    def age(self, name):
        """What the server does by itself to a backlog that stood for a while, so that plans do not depend on luck."""
        self.psql("vacuum analyze", database=name)
        try:
            self.psql("checkpoint")
        except RuntimeError:
            pass  # Not everybody may; then it comes when it comes.

    def pin(self, name):
        """A session that holds an old snapshot and a transaction id, so that no dead row may be removed."""
        session = subprocess.Popen(
            ["psql", "-qXAt", self.database(name)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        session.stdin.write("begin isolation level repeatable read; select txid_current();\n")
        session.stdin.flush()
        session.stdout.readline()
        return session

    def settings(self):
        names = ", ".join(f"'{name}'" for name in TOLD)
        rows = self.psql(f"select name, current_setting(name) from pg_settings where name in ({names})")
        return dict(row.split("|") for row in rows.splitlines())

    def wal_bytes(self):
        return int(self.psql("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"))

    def cpu_seconds(self):
        """Of the server and all its processes, ended ones too; None where it runs on another machine."""
        if self.postmaster is None:
            return None
        ticks = 0
        for path in glob.glob("/proc/[0-9]*/stat"):
            fields = process(path)
            if fields and int(fields[1]) == self.postmaster:
                ticks += int(fields[11]) + int(fields[12])
            elif path == f"/proc/{self.postmaster}/stat":
                ticks += sum(int(field) for field in fields[11:15])
        return ticks / TICKS_PER_SECOND

    def _postmaster(self):
        session = subprocess.Popen(
            ["psql", "-qXAt", self.database("postgres")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        session.stdin.write("select pg_backend_pid();\n")
        session.stdin.flush()
        backend = session.stdout.readline().strip()
        fields = process(f"/proc/{backend}/stat")
        parent = int(fields[1]) if fields else 0
        session.communicate("")
        if not backend:
            raise RuntimeError(f"the server cannot be reached: {self.url.rsplit('@', 1)[-1]}")
        try:
            with open(f"/proc/{parent}/comm") as file:
                return parent if file.read().strip() in ("postgres", "postmaster") else None
        except OSError:
            return None


def process(path):
    """The fields of a process after its name; None once it is gone."""
    try:
        with open(path) as file:
            return file.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None


class ThrowAway:
    """A server of its own from the programs on this machine, removed at the end: `with ThrowAway() as server`."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="leasehold-peers-")
        try:
            return self._start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        # Whoever asks twice for a stop would otherwise have the folder left behind.
        for request in (signal.SIGINT, signal.SIGTERM):
            signal.signal(request, signal.SIG_IGN)
        if getattr(self, "process", None):
            self.process.send_signal(signal.SIGINT)
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self):
        # The server refuses to run as root.
        user = unprivileged() if os.getuid() == 0 else {}
        if user:
            shutil.chown(self.folder, user["user"], user["group"])
        programs, data = program_folder(), os.path.join(self.folder, "data")
        initdb = [f"{programs}/initdb", "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8"]
        subprocess.run(initdb, check=True, capture_output=True, cwd=self.folder, **user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [f"{programs}/postgres", "-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", self.folder]
        for name, value in SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        log = open(os.path.join(self.folder, "log"), "w")
        # A group of its own: an interrupt at the terminal is ours to pass on.
        self.process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=self.folder, start_new_session=True, **user)
        url = f"postgres://postgres@127.0.0.1:{port}"
        waiting = [f"{programs}/pg_isready", "-q", "-t", "1", "-d", f"{url}/postgres"]
        for _ in range(600):
            if self.process.poll() is not None:
                break
            if subprocess.run(waiting).returncode == 0:
                return Server(url)
            time.sleep(0.05)
        with open(log.name) as said:
            raise RuntimeError(f"the server did not start:\n{said.read()}")


def unprivileged():
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise RuntimeError("there is no user to run the server as: run this as another than root, or give --pg")


def program_folder():
    """Of the server's programs: what pg_config says, or the newest that a distribution installed."""
    folders = glob.glob("/usr/lib/postgresql/*/bin")
    folders.sort(key=lambda path: int(path.split("/")[4].split(".")[0]), reverse=True)
    if shutil.which("pg_config"):
        said = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True)
        folders.insert(0, said.stdout.strip())
    for folder in folders:
        if os.access(f"{folder}/postgres", os.X_OK):
            return folder
    raise RuntimeError("no Postgres server is installed: install one (Debian: postgresql), or give --pg")
