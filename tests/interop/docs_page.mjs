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
const seen = { links, listed, execute, authorize, keyboard, photograph };
try {
    for (const text of cases) {
        const { do: name, url, password, options, ...what } = JSON.parse(text);
        const httpCredentials = password && { username: "anyone", password };
        const context = await browser.newContext({ viewport: { width: 1200, height: 900 }, httpCredentials, ...options });
        context.setDefaultTimeout(20000);
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

// Whether the page is as wide as its window, and a picture of it.
async function photograph(page, { shows, picture, path, body }) {
    await page.locator(shows).first().waitFor();
    if (path) await tryOut(page, path, body);
    await page.screenshot({ path: picture, fullPage: true });
    const width = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    return { tooWide: Math.max(0, width) };
}
