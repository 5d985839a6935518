// The pages of a bridge in Chromium, which reaches nothing but this machine.
//
//   node docs_page.mjs PLAYWRIGHT CHROMIUM '{"do": "execute", "url": URL, ...}' ...
//
// Each case is a line of the output, as JSON: what was seen, where the page asked (`asked`, the origins of all requests) and
// what the browser complained of (`complaints`).

import { createRequire } from "node:module";

const [playwright, chromium, ...cases] = process.argv.slice(2);
const { chromium: browsers } = createRequire(playwright + "/")("playwright-core");
const browser = await browsers.launch({
    executablePath: chromium,
    args: ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
});
const seen = { links, listed, execute, authorize, keyboard, photograph, server, refused, walk };
try {
    for (const text of cases) {
        const { do: name, url, password, options, ...what } = JSON.parse(text);
        const httpCredentials = password && { username: "anyone", password };
        const context = await browser.newContext({ viewport: { width: 1200, height: 900 }, httpCredentials, ...options });
        context.setDefaultTimeout(20000);
        // A page inside TLS, or of this machine, may write to the clipboard; the test reads it.
        await context.grantPermissions(["clipboard-read", "clipboard-write"]);
        const page = await context.newPage();
        const [asked, complaints] = [new Set(), []];
        context.on("request", (request) => asked.add(new URL(request.url()).origin));
        page.on("console", (message) => {
            // At an address that is no page, the browser looks for a picture of its own accord.
            if (message.location().url.endsWith("/favicon.ico")) return;
            if (["error", "warning"].includes(message.type())) complaints.push(message.text());
        });
        page.on("pageerror", (error) => complaints.push(String(error)));
        await page.goto(url);
        const found = await seen[name](page, what).catch((error) => ({ failed: String(error).slice(0, 500) }));
        // What a page has in itself (`data:`) has no origin.
        asked.delete("null");
        console.log(JSON.stringify({ ...found, asked: [...asked], complaints }));
        await context.close();
    }
} finally {
    await browser.close();
}

// Follows each link of the page, by a click, and says where it leads.
async function links(page) {
    const found = {};
    for (let at = 0; at < (await page.locator("a").count()); at++) {
        const link = page.locator("a").nth(at);
        const address = await link.getAttribute("href");
        const [response] = await Promise.all([page.waitForNavigation(), link.click()]);
        found[address] = [new URL(page.url()).pathname, response.status(), await page.title()];
        await page.goBack();
    }
    return { title: await page.title(), links: found };
}

// The operations that the page shows, once there are so many.
async function listed(page, { count }) {
    await page.locator(".opblock").nth(count - 1).waitFor();
    const paths = await page.locator(".opblock-summary-path").allTextContents();
    // Swagger UI lets long paths break, at characters that are not seen.
    return { title: await page.title(), operations: paths.map((path) => path.replaceAll("\u200b", "")) };
}

// Opens a tool, writes its arguments, and clicks `Execute`. Each answer is its status and its text.
async function execute(page, { path, body, times = 1, file }) {
    const answers = [await tryOut(page, path, body)];
    while (answers.length < times) answers.push(await press(page, path));
    if (!file) return { answers };
    // The link stands in the answer as it does for a model.
    const address = answers[0][1].match(/\((http[^)]*)\)/)?.[1];
    const download = address && (await page.context().request.get(address));
    return { answers: answers.map(([status]) => status), name: address?.split("/").pop(), file: await download?.text() };
}

// Tries a tool without the key, gives the page the key, and tries again.
async function authorize(page, { path, body, key }) {
    const answers = [await tryOut(page, path, body)];
    await page.locator("button.authorize.unlocked").first().click();
    await page.locator(".modal-ux input").fill(key);
    await page.locator(".modal-ux button.authorize").click();
    await page.locator(".modal-ux button.btn-done").click();
    answers.push(await press(page, path));
    return { answers };
}

async function tryOut(page, path, body) {
    const operation = operationOf(page, path);
    await operation.locator(".opblock-summary-control").click();
    await operation.locator("textarea").fill(JSON.stringify(body));
    return press(page, path);
}

async function press(page, path, how = () => operationOf(page, path).locator("button.execute").click()) {
    const operation = operationOf(page, path);
    const answered = page.waitForResponse((response) => response.url().endsWith(path) && response.request().method() === "POST");
    await how();
    const response = await answered;
    const shown = operation.locator(".live-responses-table tbody .response");
    await shown.locator(".response-col_status", { hasText: String(response.status()) }).waitFor();
    const text = await shown.locator(".highlight-code pre").first().textContent();
    return [response.status(), text.trim()];
}

function operationOf(page, path) {
    return page.locator(".opblock", { has: page.locator(`[data-path="${path}"]`) });
}

// Goes by the Tab key to the first tool, opens it by Enter, goes on to its arguments, writes them, and on to its button, and
// presses that. What has the focus on the way and does not look so is named.
async function keyboard(page, { path, body }) {
    await page.locator(".opblock").first().waitFor();
    const unseen = [];
    const steps = [await goTo(page, "opblock-summary-control", unseen)];
    await page.keyboard.press("Enter");
    await page.locator(".opblock.is-open textarea").waitFor();
    steps.push(await goTo(page, "body-param__text", unseen));
    await page.keyboard.press("Control+A");
    await page.keyboard.type(JSON.stringify(body));
    steps.push(await goTo(page, "execute", unseen));
    const answer = await press(page, path, () => page.keyboard.press("Enter"));
    return { soon: steps.every((count) => count < 12), unseen, answer };
}

async function goTo(page, kind, unseen) {
    for (let count = 1; count < 40; count++) {
        await page.keyboard.press("Tab");
        const [kinds, isSeen] = await page.evaluate(() => {
            const { activeElement: element } = document;
            const look = () => ["outlineStyle", "borderColor", "borderWidth"].map((name) => getComputedStyle(element)[name]).join();
            const focused = look();
            element.blur();
            const other = look();
            element.focus({ focusVisible: true });
            return [element.className, focused !== other];
        });
        if (!isSeen) unseen.push(kinds);
        if (kinds.split(" ").includes(kind)) return count;
    }
    throw new Error(`the focus does not come to ${kind}`);
}

// The page of a server: its tools, the clients, what its buttons copy, and the file that it has made.
async function server(page, { key, clipboard = true }) {
    if (!clipboard) await page.evaluate(() => Object.defineProperty(navigator, "clipboard", { value: undefined }));
    const copied = { address: await copy(page, "the address"), claude: await copy(page, "what Claude Code needs") };
    return {
        tools: await page.locator("dt").allTextContents(),
        clients: await page.locator("summary").allTextContents(),
        marks: await page.locator("mark").count(),
        copied,
        ...(await made(page, key)),
    };
}

// Presses the button that copies this, and reads the clipboard by pasting.
async function copy(page, name) {
    await page.getByRole("button", { name: `Copy ${name}`, exact: true }).click();
    await page.getByRole("button", { name: `Copied: ${name}` }).waitFor();
    return pasted(page);
}

// What is in the clipboard, whether or not the page may read it.
async function pasted(page) {
    const other = await page.context().newPage();
    await other.goto(page.url());
    await other.evaluate(() => document.body.prepend(document.createElement("textarea")));
    await other.locator("textarea").focus();
    await other.keyboard.press("Control+V");
    const text = await other.locator("textarea").inputValue();
    await other.close();
    return text;
}

// Has a file made, and follows its link: it is a download.
async function made(page, key) {
    if (key) await page.getByLabel("Your key").fill(key);
    await page.getByRole("button", { name: "Make a sample file" }).click();
    const link = page.locator("output a");
    const [download] = await Promise.all([page.waitForEvent("download"), link.click()]);
    const chunks = [];
    for await (const chunk of await download.createReadStream()) chunks.push(chunk);
    return { name: download.suggestedFilename(), file: Buffer.concat(chunks).toString() };
}

// What is said to a key that is none.
async function refused(page, { key }) {
    await page.getByLabel("Your key").fill(key);
    await page.getByRole("button", { name: "Make a sample file" }).click();
    const said = page.locator("output", { hasText: "not made" });
    await said.waitFor();
    return { said: await said.textContent() };
}

// Goes through the page of a server by the Tab key alone.
async function walk(page) {
    const unseen = [];
    await page.locator("main").waitFor();
    const to = async (what) => {
        for (let count = 0; count < 40; count++) {
            await page.keyboard.press("Tab");
            const [text, isSeen] = await page.evaluate(look);
            if (!isSeen) unseen.push(text);
            if (text.includes(what)) return;
        }
        throw new Error(`the focus does not come to ${what}`);
    };
    await to("Copy");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Copied: the address" }).waitFor();
    const copied = await pasted(page);
    await to("Make a sample file");
    await page.keyboard.press("Enter");
    const link = page.locator("output a");
    await link.waitFor();
    await to("VS Code");
    await page.keyboard.press("Enter");
    const opened = await page.locator("details", { hasText: ".vscode/mcp.json" }).evaluate((element) => element.open);
    return { copied, opened, unseen, name: await link.textContent() };
}

// What has the focus, and whether that is seen.
function look() {
    const { activeElement: element } = document;
    const shown = () => ["outlineStyle", "borderColor", "borderWidth"].map((name) => getComputedStyle(element)[name]).join();
    const focused = shown();
    element.blur();
    const other = shown();
    element.focus({ focusVisible: true });
    return [element.textContent || element.tagName, focused !== other];
}

// Whether the page is as wide as its window, and a picture of it.
async function photograph(page, { shows, picture, path, body, opens }) {
    await page.locator(shows).first().waitFor();
    if (opens) await page.evaluate(() => document.querySelectorAll("details").forEach((element) => (element.open = true)));
    if (path) await tryOut(page, path, body);
    await page.screenshot({ path: picture, fullPage: true });
    const width = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    return { tooWide: Math.max(0, width) };
}
