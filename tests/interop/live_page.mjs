// A web page in Chromium, and what becomes of its WebSocket to an application.
//
//   node live_page.mjs PLAYWRIGHT CHROMIUM '{"page": URL, "url": "ws://...", "protocols": [...], "tools": true}' ...
//
// Each case is a line of the output, as JSON: `{"opened": false}`, or what the page heard.

import { createRequire } from "node:module";

const [playwright, chromium, ...cases] = process.argv.slice(2);
const { chromium: browsers } = createRequire(playwright + "/")("playwright-core");
const browser = await browsers.launch({
    executablePath: chromium,
    // A name of a page's own that means this machine.
    args: ["--no-sandbox", "--host-resolver-rules=MAP evil.example 127.0.0.1"],
});
try {
    for (const text of cases) {
        const { page: address, ...what } = JSON.parse(text);
        const page = await browser.newPage();
        await page.goto(address);
        console.log(JSON.stringify(await page.evaluate(inPage, what)));
        await page.close();
    }
} finally {
    await browser.close();
}

// Runs in the page.
async function inPage({ url, protocols, tools }) {
    const socket = new WebSocket(url, protocols);
    const waiting = new Map();
    socket.onmessage = ({ data }) => {
        const message = JSON.parse(data);
        waiting.get(message.id)?.(message);
    };
    const opened = await new Promise((resolve) => {
        socket.onopen = () => resolve(true);
        socket.onclose = () => resolve(false);
    });
    if (!opened) return { opened };
    let last = 0;
    const ask = (method, params) =>
        new Promise((resolve, reject) => {
            const id = ++last;
            waiting.set(id, resolve);
            socket.onclose = ({ code }) => reject(new Error(`closed with ${code}`));
            socket.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
        });
    const clientInfo = { name: "page", version: "1" };
    const hello = await ask("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo });
    socket.send(JSON.stringify({ jsonrpc: "2.0", method: "notifications/initialized" }));
    const list = await ask("tools/list", {});
    const called = await ask("tools/call", { name: "list_active_patches", arguments: {} });
    return {
        opened,
        origin: location.origin,
        protocol: socket.protocol,
        version: hello.result.protocolVersion,
        tools: list.result.tools.length,
        patches: called.result.structuredContent,
    };
}
