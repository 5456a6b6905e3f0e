/**
 * The child side of Leasehold for Node 18 and later: one process, one request, one result. This file
 * is all there is; put it beside your handler.
 *
 *     import { runHandler } from "./leasehold-handler.mjs";
 *     runHandler(async (request) => ({ greeting: `Hello, ${request.name}` }));
 */

import fs from "node:fs";
import { inspect } from "node:util";

const FAILED = 1;
const PARKED = 75;

/** The worker stops reading, and the run has failed, above this size unless it is told another one. */
const RESULT_BYTES_MAX = 1 << 20;

/** The worker keeps the first 2 KiB; the whole message is with the stack on standard error. */
const MESSAGE_CHARS_MAX = 4_096;

/** Keeps a progress line below the 4096 bytes that a pipe takes in one piece. */
const NOTE_CHARS_MAX = 500;

/** A code unit that pairs with none. JSON can spell it, but nobody else's parser takes it. */
const LONE_SURROGATES = /\p{Surrogate}/gu;

/** The request is not one JSON object. */
export class ValidationError extends Error {
  name = "ValidationError";
}

/** What the handler returned has no form as a JSON object. */
export class MalformedResult extends TypeError {
  name = "MalformedResult";
}

/** The result is larger than the worker reads. */
export class ResultTooLarge extends RangeError {
  name = "ResultTooLarge";
}

class Parked extends Error {
  name = "Parked";
}

/** Set by `park`; from then on the run ends as parked, whatever becomes of the exception. */
let parked;

/** Set with the first ending; there is no second. */
let endedWith;

/** The descriptor that leads to the worker. */
let resultFd = 1;

/**
 * What the worker says about this run, read from the environment at each access. Each is `undefined`
 * where the worker does not say it.
 */
export const context = Object.freeze({
  /** The work item. Stays the same over all attempts. */
  get itemId() {
    return process.env.LEASEHOLD_ITEM_ID || undefined;
  },
  /** What to do, such as `RESIZE_IMAGE`. */
  get kind() {
    return process.env.LEASEHOLD_KIND || undefined;
  },
  /** The first attempt is 1. */
  get attempt() {
    return wholeNumber("LEASEHOLD_ATTEMPT");
  },
  /**
   * The fencing number: rises with every claim of the item and never falls. Another store that keeps
   * the highest number it has seen, and refuses a write with a lower one, cannot be written to by a
   * run that has been replaced.
   */
  get fence() {
    return wholeNumber("LEASEHOLD_FENCE");
  },
  /** The tenant whose work this is. */
  get orgId() {
    return process.env.LEASEHOLD_ORG_ID || undefined;
  },
  /** The trace that caused the work, in the form of W3C Trace Context. */
  get traceparent() {
    return process.env.TRACEPARENT || undefined;
  },
});

/**
 * Runs the handler on the request of this process, reports how it ended, and exits.
 *
 * The handler is given the request as an object and returns an object, or a promise of one.
 *
 * - From here on standard output belongs to the result, and whatever else is written to it goes to
 *   standard error; what subprocesses and native code write does so on Linux, under a worker. What
 *   was written before cannot be taken back, so load noisy modules with `import()` inside the handler.
 * - An exception, an unhandled rejection too, becomes a failure under its name, with the stack on
 *   standard error.
 * - A run that is to be stopped gets SIGTERM first and SIGKILL after a grace. Nothing is done about
 *   SIGTERM here: listen for it where there is something to tidy up.
 * - The process exits once the result is written: timers and sockets that are still open are not
 *   waited for.
 *
 * @param {(request: Record<string, unknown>) => object | Promise<object>} handler
 * @returns {Promise<never>}
 */
export async function runHandler(handler) {
  keepStdoutAside();
  process.on("uncaughtException", fail);
  process.on("unhandledRejection", fail);
  process.on("beforeExit", () => {
    fail(new Error("the handler's promise can no longer settle: nothing is left to wait for"));
  });
  try {
    const result = await handler(parse(receive()));
    end(parked ? undefined : encode(result), 0);
  } catch (error) {
    fail(error);
  }
}

/**
 * Says how far the run has come: a line on standard error that the worker reads.
 *
 * @param {number} percent rounded down and kept within 0 to 100
 * @param {string} [note] what is being done, for people; cut after 500 characters
 * @throws {TypeError} if `percent` is no number; nothing else
 */
export function progress(percent, note = "") {
  if (typeof percent !== "number") {
    throw new TypeError(`progress: percent is a number from 0 to 100, not ${inspect(percent)}`);
  }
  const whole = Math.floor(Math.min(Math.max(percent || 0, 0), 100));
  const words = unicode(String(note).slice(0, NOTE_CHARS_MAX));
  say(`leasehold:progress {"percent": ${whole}, "note": ${JSON.stringify(words)}}\n`);
}

/**
 * Ends the run without a result: the item is tried again, and this attempt is not counted. For what
 * only time will mend, such as a quota that is used up.
 *
 * It works by throwing, so that `finally` is seen; a handler that catches the exception is parked
 * all the same once it returns.
 *
 * @param {string} reason
 * @param {number} retryAfter in seconds, 0 or more
 * @returns {never}
 * @throws {TypeError} without a reason, or with a time that is none
 */
export function park(reason, retryAfter) {
  if (typeof reason !== "string" || !reason.trim()) {
    throw new TypeError("park: give the reason in words");
  }
  if (!Number.isFinite(retryAfter) || retryAfter < 0) {
    throw new TypeError(`park: retryAfter is 0 seconds or more, not ${inspect(retryAfter)}`);
  }
  parked = JSON.stringify({ reason: unicode(reason), retry_after: retryAfter });
  throw new Parked(reason);
}

function wholeNumber(variable) {
  const text = process.env[variable];
  if (!text) return undefined;
  if (!/^\d+$/.test(text)) {
    throw new RangeError(`${variable} is not a whole number: ${inspect(text)}`);
  }
  return Number(text);
}

function receive() {
  const text = process.env.WORKER_REQUEST;
  if (text !== undefined) return text;
  let raw = "";
  try {
    raw = fs.readFileSync(0, "utf8");
  } catch {
    // No standard input is no request either.
  }
  if (!raw) {
    throw new ValidationError(
      "there is no request: give it in WORKER_REQUEST or on standard input",
    );
  }
  return raw;
}

function parse(raw) {
  let request;
  try {
    request = JSON.parse(raw);
  } catch {
    // The parser's own words repeat the text, and an error travels into logs.
    throw new ValidationError("the request is not JSON");
  }
  if (request === null || typeof request !== "object" || Array.isArray(request)) {
    throw new ValidationError("the request is JSON but not an object");
  }
  return request;
}

function encode(result) {
  if (result === null || typeof result !== "object" || Array.isArray(result)) {
    throw new MalformedResult(
      `the handler returned ${described(result)}; return an object ({} if there is nothing to say)`,
    );
  }
  let text;
  try {
    text = JSON.stringify(result, refuseWhatJsonLoses);
  } catch (error) {
    if (error instanceof MalformedResult) throw error;
    throw new MalformedResult(`the result: ${error.message}`, { cause: error });
  }
  if (!text?.startsWith("{")) {
    throw new MalformedResult(`the handler returned ${described(result)}, which is no JSON object`);
  }
  const bytes = Buffer.byteLength(text);
  if (bytes > RESULT_BYTES_MAX) {
    throw new ResultTooLarge(
      `the result has ${grouped(bytes)} bytes as JSON and ${grouped(RESULT_BYTES_MAX)} are the ` +
        "most; store it elsewhere and return where it is",
    );
  }
  return text;
}

/** A replacer that stops where `JSON.stringify` would write something else without a word. */
function refuseWhatJsonLoses(key, value) {
  const where = key === "" ? "the result" : `${inspect(key)} in the result`;
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new MalformedResult(`${where} is ${value}, which JSON has no form for`);
  }
  if (
    value instanceof Map ||
    value instanceof Set ||
    ["bigint", "function", "symbol"].includes(typeof value)
  ) {
    throw new MalformedResult(`${where} is ${described(value)}, which JSON has no form for`);
  }
  for (const text of [key, value]) {
    if (typeof text === "string" && text.search(LONE_SURROGATES) >= 0) {
      throw new MalformedResult(`${where} is text that is not Unicode (a lone surrogate)`);
    }
  }
  return value;
}

function described(value) {
  if (value === null || value === undefined) return String(value);
  if (typeof value !== "object") return `a ${typeof value}`;
  return `a value of type ${value.constructor?.name ?? "object"}`;
}

function grouped(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
}

function unicode(text) {
  return text.replace(LONE_SURROGATES, (unit) => `\\u${unit.charCodeAt(0).toString(16)}`);
}

/** Reports an exception, or that the run was parked, unless the run has ended already. */
function fail(error) {
  if (parked || endedWith !== undefined) return end();
  let message = "";
  let stack = "";
  try {
    message = String(error instanceof Error ? error.message : error);
    stack = inspect(error);
  } catch {
    message ||= "(no message: the error cannot be shown)";
  }
  if (message.length > MESSAGE_CHARS_MAX) {
    message = `${message.slice(0, MESSAGE_CHARS_MAX)} [cut]`;
  }
  say(`${stack || message}\n`);
  end(JSON.stringify({ error: unicode(nameOf(error)), message: unicode(message) }), FAILED);
}

/** The name the error's class was given, or else the class's own, which subclasses inherit. */
function nameOf(error) {
  try {
    if (!(error instanceof Error)) return "NotAnError";
    const isNamed = [error, Object.getPrototypeOf(error)].some((at) => Object.hasOwn(at, "name"));
    return String((isNamed && error.name) || error.constructor.name || "Error");
  } catch {
    return "Error";
  }
}

/** Writes what the run came to and exits. An exit listener that throws comes back here. */
function end(text, code) {
  if (endedWith === undefined) {
    endedWith = parked ? PARKED : code;
    try {
      writeAll(resultFd, parked ?? text);
    } catch (error) {
      say(`leasehold-handler: cannot write the result: ${error.message}\n`);
      endedWith = FAILED;
    }
  }
  process.exit(endedWith);
}

function say(text) {
  try {
    writeAll(2, text);
  } catch {
    // Standard error is closed; there is nowhere left to say so.
  }
}

/** All of it, before anything else happens: an exit does not wait for streams. */
function writeAll(fd, text) {
  let rest = Buffer.from(text);
  while (rest.length > 0) {
    try {
      rest = rest.subarray(fs.writeSync(fd, rest));
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      // The pipe is full and does not block. Let its reader get ahead.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
    }
  }
}

/**
 * Leads descriptor 1 to standard error where the system lets us, which holds for subprocesses and
 * native code too; and the stream in any case.
 */
function keepStdoutAside() {
  try {
    moveStdout();
  } catch {
    // Another system, or a stream that cannot be opened anew: the stream below is what is left.
  }
  const { stderr } = process;
  process.stdout.write = stderr.write.bind(stderr);
}

function moveStdout() {
  // Only pipes: opening a file anew would begin at its start.
  if (![1, 2].every((fd) => fs.fstatSync(fd).isFIFO())) return;
  const kept = fs.openSync("/proc/self/fd/1", "w");
  const stderr = fs.openSync("/proc/self/fd/2", "w");
  resultFd = kept;
  // The lowest free descriptor is the one that opens next.
  fs.closeSync(1);
  const moved = fs.openSync("/proc/self/fd/2", "w");
  fs.closeSync(stderr);
  if (moved !== 1) throw new Error("another descriptor was free");
}
