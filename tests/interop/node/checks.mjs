// The checks every Node client makes, in one order and with one output.
//
// A client file says how its SDK connects, calls and cancels; what must hold is written here.
// The same checks are in `../python/checks.py` and `../rmcp/src/main.rs`.

import assert from "node:assert/strict";
import { parseArgs } from "node:util";

const JAPANESE = "桟橋は水に浮かぶ 🌊 — ﾎﾟﾝﾂｰﾝ";
const STEPS = 5;
const BIG_BYTES = 2 * 1024 * 1024;
const PARALLEL = 20;
// A check that takes longer has hung: the slowest needs about a second.
const DEADLINE_MS = 30_000;
const CANCEL_AFTER_MS = 500;

/** What a user types when `ask` asks. */
export function answerBlue(question) {
  assert.match(question, /colour/);
  return { action: "accept", content: { answer: "blue" } };
}

/** The text of a tool's answer; throws when the tool says that it failed. */
export function textOf(result) {
  const text = result.content.map((block) => block.text).join("");
  assert.ok(!result.isError, `the tool failed: ${text}`);
  return text;
}

const CHECKS = {
  "list tools": async (connection) => {
    const names = await connection.toolNames();
    assert.ok(names.includes("echo"), `no echo in ${names}`);
  },

  echo: async (connection) => {
    for (const text of ["plain", JAPANESE, 'quotes " and \\ and\nnewlines', ""]) {
      assert.equal(await connection.call("echo", { text }), text);
    }
  },

  progress: async (connection) => {
    const seen = [];
    const onprogress = ({ progress }) => seen.push(progress);
    await connection.call("count", { steps: STEPS, delay_ms: 20 }, { onprogress });
    // A copy, so that what comes after the answer does not count.
    const beforeAnswer = [...seen];
    assert.equal(beforeAnswer.length, STEPS, `${beforeAnswer} before the answer`);
    for (let i = 1; i < STEPS; i++) {
      assert.ok(beforeAnswer[i - 1] < beforeAnswer[i], `out of order: ${beforeAnswer}`);
    }
  },

  cancel: async (connection) => {
    const abort = new AbortController();
    const call = connection.call("wait", { ms: 60_000 }, { signal: abort.signal });
    setTimeout(() => abort.abort("no longer wanted"), CANCEL_AFTER_MS);
    const start = performance.now();
    await assert.rejects(call, /no longer wanted/);
    assert.ok(performance.now() - start >= CANCEL_AFTER_MS - 50, "ended before it was cancelled");
    const afterCancel = performance.now();
    assert.equal(await connection.call("echo", { text: "after the cancel" }), "after the cancel");
    const took = performance.now() - afterCancel;
    assert.ok(took < 5_000, `the call after the cancel took ${took} ms`);
  },

  elicitation: async (connection) => {
    assert.equal(await connection.call("ask", { question: "Which colour?" }), "accept:blue");
  },

  "big answer": async (connection) => {
    const answer = await connection.call("big", { bytes: BIG_BYTES });
    assert.equal(answer.length, BIG_BYTES);
    assert.ok(answer === "x".repeat(BIG_BYTES), "the content differs");
  },

  "parallel calls": async (connection) => {
    const texts = Array.from({ length: PARALLEL }, (_, n) => `call ${n} ${JAPANESE}`);
    const answers = await Promise.all(texts.map((text) => connection.call("echo", { text })));
    const mixed = texts.filter((text, n) => text !== answers[n]);
    assert.ok(mixed.length === 0, `${mixed.length} mixed up, first ${mixed[0]}`);
  },
};

/** Connects, makes every check, closes, and ends the process. */
export async function main(connect, eras) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      era: { type: "string", default: eras[0] },
      "server-note": { type: "string", default: "" },
    },
  });
  const [url] = positionals;
  const { era } = values;
  if (!url || !eras.includes(era)) {
    console.error(`usage: client URL [--era ${eras.join("|")}] [--server-note NOTE]`);
    process.exit(2);
  }
  console.log(`# ${url} ${era} ${values["server-note"]}`.trimEnd());

  let passed = 0;
  let failed = 0;
  const check = async (name, work) => {
    const start = performance.now();
    try {
      await withDeadline(work());
      passed += 1;
      console.log(`ok   ${name} (${((performance.now() - start) / 1000).toFixed(2)} s)`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL ${name}: ${String(error).replace(/\s+/g, " ").slice(0, 500)}`);
    }
  };

  let connection;
  await check("connect", async () => {
    connection = await connect(new URL(url), era);
    // `auto` falls back in silence: without this line a modern run could pass as a legacy one.
    const isModern = connection.protocolVersion >= "2026-07-28";
    assert.equal(isModern, era !== "legacy", `${era} speaks ${connection.protocolVersion}`);
  });
  if (connection) {
    for (const [name, work] of Object.entries(CHECKS)) {
      await check(name, () => work(connection));
    }
    await check("close", () => connection.close());
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
}

async function withDeadline(work) {
  let timer;
  const deadline = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end after ${DEADLINE_MS} ms`)), DEADLINE_MS);
  });
  try {
    return await Promise.race([work, deadline]);
  } finally {
    clearTimeout(timer);
  }
}
