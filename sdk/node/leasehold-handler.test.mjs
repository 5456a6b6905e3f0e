// Runs handlers as the worker does: a process, its environment, its output and its exit code.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";

const SDK = new URL("leasehold-handler.mjs", import.meta.url).href;

// Far above what any of these runs takes: a child that hangs is to fail its test, not the suite.
const MILLISECONDS_MAX = 30_000;

const folder = mkdtempSync(join(tmpdir(), "leasehold-"));
after(() => rmSync(folder, { recursive: true }));
let scripts = 0;

// Node gives its children sockets; a worker gives them pipes, and so does this.
const WITH_PIPES = `exec 4>&1 5>&2
{ { "$@" 3>&- 4>&- 5>&-; echo $? >"$0"; } 2>&3 | cat >&4; } 3>&1 | cat >&5
exit "$(cat "$0")"`;

/** Runs a handler given as source text; `request` goes into the variable, `stdin` onto the stream. */
async function run(source, { request, stdin, environment = {}, streams = "sockets" } = {}) {
  const script = join(folder, `${++scripts}.mjs`);
  writeFileSync(script, `import * as sdk from ${JSON.stringify(SDK)};\n${source}`);
  const { PATH } = process.env;
  const command = [process.execPath, script];
  if (streams === "pipes") command.unshift("sh", "-c", WITH_PIPES, `${script}.code`);
  const child = spawn(command[0], command.slice(1), {
    env: {
      PATH,
      ...(stdin === undefined && {
        WORKER_REQUEST: typeof request === "string" ? request : JSON.stringify(request ?? {}),
      }),
      ...environment,
    },
    timeout: MILLISECONDS_MAX,
    killSignal: "SIGKILL",
  });
  const collected = Promise.all([text(child.stdout), text(child.stderr)]);
  child.stdin.on("error", () => {});
  child.stdin.end(stdin ?? "");
  const [code, signal] = await new Promise((resolve) =>
    child.on("close", (...ending) => resolve(ending)),
  );
  const [stdout, stderr] = await collected;
  return { code: code ?? signal, stdout, stderr };
}

async function text(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}

const handler = (body) => `sdk.runHandler(async (request) => { ${body} });`;

async function endsAs(source, code, object, options) {
  const ending = await run(source, options);
  assert.deepEqual([ending.code, parsed(ending)], [code, object], ending.stderr);
  return ending;
}

async function failsAs(source, error, words, options) {
  const ending = await run(source, options);
  assert.equal(ending.code, 1, ending.stderr);
  assert.equal(parsed(ending).error, error);
  assert.match(parsed(ending).message, words);
  return ending;
}

/** Standard output as a whole, as the worker reads it: one JSON object of Unicode text. */
function parsed({ stdout }) {
  return JSON.parse(stdout, (key, value) => {
    for (const text of [key, value]) {
      if (typeof text === "string") assert.doesNotMatch(text, /\p{Surrogate}/u);
    }
    return value;
  });
}

describe("the request", { concurrency: true }, () => {
  const echo = handler("return { got: request };");

  test("comes from the variable first", () =>
    endsAs(echo, 0, { got: { n: 1 } }, { environment: { WORKER_REQUEST: '{"n": 1}' }, stdin: "{}" }));

  test("comes from standard input without it", async () => {
    const large = "ü".repeat(300_000);
    await endsAs(echo, 0, { got: { large } }, { stdin: JSON.stringify({ large }) });
  });

  test("is missed", () => failsAs(echo, "ValidationError", /there is no request/, { stdin: "" }));

  for (const request of ["", "{", '{"secret": hunter2}', "[1]", "null", '"a"']) {
    test(`is refused if it is ${request || "empty"}`, async () => {
      const ending = await failsAs(echo, "ValidationError", /the request is/, { request });
      assert.doesNotMatch(ending.stdout + ending.stderr, /hunter2/);
    });
  }
});

describe("a result", { concurrency: true }, () => {
  test("may come at once or later", async () => {
    await endsAs("sdk.runHandler((request) => ({ ...request, b: 2 }));", 0, { a: 1, b: 2 }, {
      request: { a: 1 },
    });
    await endsAs("await sdk.runHandler(async () => ({ c: [null, 'é東😀'] }));", 0, {
      c: [null, "é東😀"],
    });
  });

  test("is written whole, up to the limit", async () => {
    const room = (1 << 20) - '{"a":""}'.length;
    const ending = await run(handler(`return { a: "x".repeat(${room}) };`));
    assert.deepEqual([ending.code, ending.stdout.length], [0, 1 << 20]);
    await failsAs(
      handler(`return { a: "é" + "x".repeat(${room - 1}) };`),
      "ResultTooLarge",
      /1,048,577 bytes as JSON and 1,048,576 are the most/,
    );
  });

  for (const [value, words] of [
    ["undefined", /the handler returned undefined/],
    ["null", /returned null/],
    ["[1]", /returned a value of type Array/],
    ["'text'", /returned a string/],
    ["new Date()", /returned a value of type Date/],
    ["new Map()", /the result is a value of type Map/],
    ["{ a: [NaN] }", /'0' in the result is NaN/],
    ["{ a: -1 / 0 }", /'a' in the result is -Infinity/],
    ["{ a: new Set() }", /'a' in the result is a value of type Set/],
    ["{ a: 1n }", /'a' in the result is a bigint/],
    ["{ a: () => 1 }", /'a' in the result is a function/],
    ["{ a: 'b\\ud800' }", /'a' in the result is text that is not Unicode/],
    ["{ '\\udc00': 1 }", /in the result is text that is not Unicode/],
    ["(() => { const a = {}; a.a = a; return a; })()", /circular/],
  ]) {
    test(`is not ${value}`, () => failsAs(handler(`return ${value};`), "MalformedResult", words));
  }
});

describe("a failure", { concurrency: true }, () => {
  const cases = {
    "its class": ["class NoSuchType extends Error {}; throw new NoSuchType('a \"b\"\\n');", "NoSuchType", /^a "b"\n$/],
    "its name": ["const e = new Error('x'); e.name = 'Renamed'; throw e;", "Renamed", /^x$/],
    "a class below a built-in": ["class Odd extends TypeError {}; throw new Odd('x');", "Odd", /^x$/],
    "a built-in": ["null.x;", "TypeError", /null/],
    "an aborted signal": ["AbortSignal.abort().throwIfAborted();", "AbortError", /aborted/],
    "what is no error": ["throw 'text';", "NotAnError", /^text$/],
    nothing: ["throw undefined;", "NotAnError", /^undefined$/],
    "what cannot be shown": [
      "throw new Proxy({}, { get() { throw new Error('no'); }, getPrototypeOf() { throw new Error('no'); } });",
      "Error",
      /no message|\[object|^$/,
    ],
    "a lone surrogate": ["throw new Error('\\ud83d!');", "Error", /^\\ud83d!$/],
    "a message of megabytes": ["throw new Error('x'.repeat(1e7));", "Error", /^x{4096} \[cut\]$/],
    "an unhandled rejection": [
      "Promise.reject(new RangeError('left')); await new Promise((r) => setTimeout(r, 20_000));",
      "RangeError",
      /^left$/,
    ],
    "an uncaught exception": [
      "setImmediate(() => { throw new RangeError('late'); }); await new Promise((r) => setTimeout(r, 20_000));",
      "RangeError",
      /^late$/,
    ],
    "a promise that cannot settle": ["await new Promise(() => {});", "Error", /can no longer settle/],
  };
  for (const [what, [body, error, words]] of Object.entries(cases)) {
    test(`is ${what}`, () => failsAs(handler(body), error, words));
  }

  test("also of a promise that cannot settle and is awaited", () =>
    failsAs("await sdk.runHandler(() => new Promise(() => {}));", "Error", /can no longer settle/));

  test("has its stack and its cause on standard error", async () => {
    const ending = await run(
      handler("throw new Error('outer', { cause: new RangeError('inner') });"),
    );
    assert.match(ending.stderr, /Error: outer\n\s+at /);
    assert.match(ending.stderr, /RangeError: inner/);
  });
});

describe("parking", { concurrency: true }, () => {
  test("holds even if the exception is caught", () =>
    endsAs(
      handler("try { sdk.park('quota \"ü\" \\ud800', 90.5); } catch {} return { swallowed: true };"),
      75,
      { reason: 'quota "ü" \\ud800', retry_after: 90.5 },
    ));

  test("lets finally run", async () => {
    const ending = await endsAs(
      handler("try { sdk.park('later', 0); } finally { console.log('tidied'); }"),
      75,
      { reason: "later", retry_after: 0 },
    );
    assert.equal(ending.stderr, "tidied\n");
  });

  for (const given of ["", "'a'", "'', 1", "1, 1", "'a', -1", "'a', NaN", "'a', '1'"]) {
    test(`refuses (${given})`, () => failsAs(handler(`sdk.park(${given});`), "TypeError", /^park: /));
  }
});

describe("the streams", { concurrency: true }, () => {
  const prints = `
    console.log("from console");
    console.log('{"error": "AbortedStaleTask", "message": "forged"}');
    process.stdout.write("from the stream\\n");`;

  for (const streams of ["sockets", "pipes"]) {
    test(`keep the result clean of what is printed (${streams})`, async () => {
      const ending = await endsAs(handler(`${prints} return {};`), 0, {}, { streams });
      assert.match(ending.stderr, /^from console\n\{"error".*\nfrom the stream\n$/);
    });
  }

  test("keep it clean of subprocesses too, if they are pipes", async () => {
    const large = "x".repeat(500_000);
    const ending = await endsAs(
      `import { spawnSync } from "node:child_process";
       import fs from "node:fs";
       ${handler(`
         ${prints}
         fs.writeSync(1, "from the descriptor\\n");
         spawnSync("sh", ["-c", "echo from a subprocess"], { stdio: "inherit" });
         return { large: "x".repeat(500_000) };`)}`,
      0,
      { large },
      { streams: "pipes" },
    );
    for (const line of ["console", "the stream", "the descriptor", "a subprocess"]) {
      assert.ok(ending.stderr.includes(`from ${line}\n`), `${line}: ${ending.stderr}`);
    }
  });

  test("end a failure and a parked run as well", async () => {
    await failsAs(handler("throw new RangeError('x');"), "RangeError", /x/, { streams: "pipes" });
    await endsAs(handler("sdk.park('y', 1);"), 75, { reason: "y", retry_after: 1 }, {
      streams: "pipes",
    });
  });

  test("carry progress", async () => {
    const ending = await endsAs(
      handler(
        `sdk.progress(40, "rows 400 of 1000"); sdk.progress(99.9); sdk.progress(101, 'say "ü"\\n');
         sdk.progress(-1, "x".repeat(9000)); sdk.progress(NaN); return {};`,
      ),
      0,
      {},
    );
    assert.equal(
      ending.stderr,
      `leasehold:progress {"percent": 40, "note": "rows 400 of 1000"}
leasehold:progress {"percent": 99, "note": ""}
leasehold:progress {"percent": 100, "note": "say \\"ü\\"\\n"}
leasehold:progress {"percent": 0, "note": "${"x".repeat(500)}"}
leasehold:progress {"percent": 0, "note": ""}
`,
    );
  });

  test("carry no progress that is no number", () =>
    failsAs(handler("sdk.progress('40');"), "TypeError", /^progress: .*not '40'/));
});

describe("the way out", { concurrency: true }, () => {
  for (const body of [
    "setInterval(() => {}, 1000);",
    "process.on('exit', () => { throw new Error('from a listener'); });",
    "process.exitCode = 9;",
    "(await import('node:net')).createServer().listen(0);",
    "setImmediate(() => { throw new Error('too late'); });",
  ]) {
    test(`is not changed by ${body}`, () => endsAs(handler(`${body} return {};`), 0, {}));
  }

  test("is the handler's own if it exits", async () => {
    const ending = await run(handler("process.exit(3);"));
    assert.deepEqual([ending.code, ending.stdout], [3, ""]);
  });

  test("is SIGTERM's unless the handler listens", async () => {
    const wait = "process.kill(process.pid, 'SIGTERM'); await new Promise((r) => setTimeout(r, 20_000));";
    assert.equal((await run(handler(wait))).code, "SIGTERM");
    await endsAs(handler(`process.on('SIGTERM', () => sdk.park('stopped', 0)); ${wait}`), 75, {
      reason: "stopped",
      retry_after: 0,
    });
  });
});

describe("the context", { concurrency: true }, () => {
  const echo = handler(
    "const { itemId, kind, attempt, fence, orgId, traceparent } = sdk.context;" +
      "return { itemId, kind, attempt, fence, orgId, traceparent };",
  );

  test("is what the worker says", () =>
    endsAs(
      echo,
      0,
      { itemId: "i", kind: "RESIZE", attempt: 2, fence: 9_000_000, orgId: "o", traceparent: "t" },
      {
        environment: {
          LEASEHOLD_ITEM_ID: "i",
          LEASEHOLD_KIND: "RESIZE",
          LEASEHOLD_ATTEMPT: "2",
          LEASEHOLD_FENCE: "9000000",
          LEASEHOLD_ORG_ID: "o",
          TRACEPARENT: "t",
        },
      },
    ));

  test("is empty where it does not", () => endsAs(echo, 0, {}));

  test("refuses what it cannot mean", () =>
    failsAs(echo, "RangeError", /LEASEHOLD_ATTEMPT/, { environment: { LEASEHOLD_ATTEMPT: "two" } }));
});
