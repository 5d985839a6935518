// Buttons that copy what is to be pasted, and the one that makes a sample file. Without this script the page says the same.
for (const text of document.querySelectorAll("pre")) {
  const button = document.createElement("button");
  const name = text.dataset.name ?? "the address";
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy ${name}`);
  button.addEventListener("click", async () => {
    const copied = await copy(text);
    button.textContent = copied ? "Copied" : "Selected: press Ctrl+C";
    button.setAttribute("aria-label", `${button.textContent}: ${name}`);
  });
  text.after(button);
}

// The clipboard is there on this machine and inside TLS; elsewhere the text is selected, and the browser is asked to copy it.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(text);
    return document.execCommand("copy");
  }
}

const form = document.querySelector("form");
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const said = form.querySelector("output");
  said.textContent = "Making it ...";
  try {
    said.replaceChildren(await made(new FormData(form).get("key")));
  } catch (error) {
    said.textContent = `It was not made: ${error.message}`;
  }
});

// Has the file made, and gives a link to it.
async function made(key) {
  const headers = { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  const body = JSON.stringify({ title: "Sample", lines: ["made by a tool", "fetched by a link"], format: "md" });
  const response = await fetch(form.action, { method: "POST", headers, body });
  const text = await response.text();
  if (!response.ok) throw new Error(JSON.parse(text).detail ?? `HTTP ${response.status}`);
  const address = text.match(/\((https?:[^)\s]*)\)/)?.[1];
  if (!address) throw new Error("the answer has no link");
  const link = document.createElement("a");
  link.href = address;
  link.download = "";
  link.textContent = decodeURIComponent(new URL(address).pathname.split("/").pop());
  return link;
}
