// Web pages in Chromium that come to a bridge as its application.
//
//   node listen_page.mjs PLAYWRIGHT CHROMIUM
//
// Each line of the input is `{"page": URL, "url": "ws://...", "protocols": [...]}`, or `{"close": true}` for all pages that are open.
// Each has a line of output: `{"opened": false}`, `{"opened": true, "code": N}` if the WebSocket was closed at once, or
// `{"opened": true, "protocol": "mcp", "heard": "initialize"}`: then the page goes on, as the application.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [playwright, chromium] = process.argv.slice(2);
const { chromium: browsers } = createRequire(playwright + "/")("playwright-core");
const browser = await browsers.launch({
    executablePath: chromium,
    // A name of a page's own that means this machine.
    args: ["--no-sandbox", "--host-resolver-rules=MAP evil.example 127.0.0.1"],
});
const pages = [];
try {
    for await (const line of createInterface({ input: process.stdin })) {
        const { close, page: address, ...what } = JSON.parse(line);
        if (close) {
            await Promise.all(pages.splice(0).map((page) => page.close()));
            console.log("{}");
            continue;
        }
        const page = await browser.newPage();
        pages.push(page);
        await page.goto(address);
        console.log(JSON.stringify(await page.evaluate(inPage, what)));
    }
} finally {
    await browser.close();
}

// Runs in the page: an application with two tools, one of which cannot do its work.
function inPage({ url, protocols }) {
    const tools = [
        { name: "page_title", description: "The title and the origin of the page.", inputSchema: { type: "object", properties: {} } },
        {
            name: "set_title",
            inputSchema: { type: "object", properties: { title: { type: "string" } }, required: ["title"] },
        },
    ];
    const call = ({ name, arguments: given }) => {
        if (name === "set_title" && typeof given.title !== "string") throw new Error("no title was given");
        if (name === "set_title") document.title = given.title;
        return `${document.title} of ${location.origin}`;
    };
    const results = {
        initialize: ({ protocolVersion }) => ({
            protocolVersion,
            capabilities: { tools: { listChanged: true } },
            serverInfo: { name: "page", version: "1" },
        }),
        "tools/list": () => ({ tools }),
        "tools/call": (params) => {
            try {
                return { content: [{ type: "text", text: call(params) }] };
            } catch (error) {
                return { content: [{ type: "text", text: String(error) }], isError: true };
            }
        },
        ping: () => ({}),
    };
    const socket = new WebSocket(url, protocols);
    return new Promise((resolve) => {
        let opened = false;
        socket.onopen = () => (opened = true);
        socket.onclose = ({ code }) => resolve(opened ? { opened, code } : { opened });
        socket.onmessage = ({ data }) => {
            const { id, method, params } = JSON.parse(data);
            if (id === undefined) return;
            const answer = results[method];
            const outcome = answer ? { result: answer(params) } : { error: { code: -32601, message: `no ${method} here` } };
            socket.send(JSON.stringify({ jsonrpc: "2.0", id, ...outcome }));
            // Only the first is heard.
            resolve({ opened, protocol: socket.protocol, heard: method });
        };
    });
}
