// What a driver does to its queue, and how it tells what came of it: one JSON object on a line. The drivers
// of Rust, ../rust/measure, do the same; keep the two alike, also in the limits, which are explained there.

const BATCH = 1_000;
const AHEAD = 20_000;
const WARM_UPS = 3;
const IDLE_AFTER_MS = 1_500;
const FLUSH_MS = 300;
const PATIENCE_SECONDS = 600;

export const url = process.env.DATABASE_URL;

// A setting of the queue's, so that another than the documented one can be tried.
export function setting(name, documented) {
  return Number(process.env[name] ?? documented);
}

let count = 0;
let lastAt = 0;
let seen = null;

// The first line of every handler.
export function handled() {
  lastAt = performance.now();
  count += 1;
  if (seen) {
    const tell = seen;
    seen = null;
    tell();
  }
}

// A peer has setup(), one(id), many(ids) and start(), which starts the worker and returns.
export async function run(peer) {
  const operation = process.argv[2];
  const items = setting("ITEMS", 20_000);
  const operations = {
    setup: async () => {
      await peer.setup();
      return {};
    },
    enqueue: () => timed(items, () => enqueue(peer, items)),
    single: () => timed(items, () => oneByOne(peer, items)),
    drain: () => drain(peer, items, PATIENCE_SECONDS),
    sustain: () => {
      keepAhead(peer);
      return drain(peer, Infinity, setting("SECONDS", 180));
    },
    latency: () => latency(peer, items),
  };
  if (!(operation in operations)) {
    throw new Error(`one of ${Object.keys(operations).join(", ")}`);
  }
  console.log(JSON.stringify(await operations[operation]()));
  await sleep(FLUSH_MS);
  process.exit(0);
}

async function enqueue(peer, items) {
  for (let sent = 0; sent < items; sent += BATCH) {
    await peer.many(range(sent, Math.min(items, sent + BATCH)));
  }
}

async function oneByOne(peer, items) {
  for (let id = 0; id < items; id += 1) {
    await peer.one(id);
  }
}

async function timed(items, work) {
  const [cpu, began] = [cpuSeconds(), performance.now()];
  await work();
  return told(items, (performance.now() - began) / 1e3, cpuSeconds() - cpu, []);
}

async function drain(peer, items, limitSeconds) {
  const [cpu, began, series] = [cpuSeconds(), performance.now(), []];
  const elapsed = () => (performance.now() - began) / 1e3;
  let before = 0;
  await peer.start();
  while (count < items && elapsed() < limitSeconds) {
    await sleep(5);
    if (elapsed() >= series.length + 1) {
      series.push(count - before);
      before = count;
    }
  }
  // The event loop may come back late, so the last handler says when it was over.
  const seconds = count >= items ? (lastAt - began) / 1e3 : elapsed();
  return told(count, seconds, cpuSeconds() - cpu, series);
}

async function keepAhead(peer) {
  for (let sent = 0; ; ) {
    if (sent < count + AHEAD) {
      await peer.many(range(sent, sent + BATCH));
      sent += BATCH;
    } else {
      await sleep(1);
    }
  }
}

async function latency(peer, items) {
  const [fromCall, fromAnswer] = [[], []];
  await peer.start();
  await sleep(IDLE_AFTER_MS);
  for (let id = 0; id < items + WARM_UPS; id += 1) {
    const pickedUp = new Promise((resolve) => {
      seen = resolve;
    });
    const called = performance.now();
    await peer.one(id);
    const answered = performance.now();
    await pickedUp;
    if (id >= WARM_UPS) {
      fromCall.push(lastAt - called);
      fromAnswer.push(lastAt - answered);
    }
    await sleep(20 + ((id * 37) % 90));
  }
  return {
    items: fromCall.length,
    p50_ms: percentile(fromCall, 0.5),
    p99_ms: percentile(fromCall, 0.99),
    after_answer_p50_ms: percentile(fromAnswer, 0.5),
    after_answer_p99_ms: percentile(fromAnswer, 0.99),
  };
}

function told(items, seconds, worker_cpu_seconds, series) {
  return { items, seconds, per_second: items / seconds, worker_cpu_seconds, series };
}

function range(from, to) {
  return Array.from({ length: to - from }, (_, at) => from + at);
}

function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function cpuSeconds() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

function percentile(values, share) {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.round((sorted.length - 1) * share)];
}
