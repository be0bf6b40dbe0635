// Keys for a reader whose hands are on the keyboard.
//
// Owns: the keys that lead to the search, to the pages in the head and along the rows of a page, and the list of
// these keys, in which a reader can turn them off. Never: does a deed, or takes a key from a field or the browser.
"use strict";
(() => {
  const OFF = "keys-are-off";
  const button = document.getElementById("keys");
  const dialog = button.nextElementSibling;
  const list = dialog.querySelector("dl"), box = dialog.querySelector("input");
  const remembered = () => { try { return localStorage.getItem(OFF); } catch { return null; } };
  let isOff = remembered() !== null, isGoing = 0;

  // Each page, by the first letter of its name that no earlier page has.
  const pages = new Map();
  for (const link of document.querySelectorAll(".top nav a")) {
    const letter = [...link.textContent.toLowerCase()].find((it) => it !== "g" && !pages.has(it));
    if (letter) pages.set(letter, link);
  }

  function tell(keys, does) {
    const group = document.createElement("div"), name = document.createElement("dt"), text = document.createElement("dd");
    for (const key of keys) {
      const kbd = document.createElement("kbd");
      kbd.textContent = key;
      name.append(kbd, " ");
    }
    text.textContent = does;
    group.append(name, text);
    list.append(group);
  }
  tell(["/"], "Find a run");
  tell(["j", "k"], "Next row, previous row");
  tell(["x"], "Choose the row");
  for (const [letter, link] of pages) tell(["g", letter], link.textContent);
  tell(["?"], "These keys");

  function open() {
    box.checked = !isOff;
    dialog.showModal();
  }

  // The link of the row that is this many rows further down.
  function move(by) {
    const links = [...document.querySelectorAll("main tbody tr")].map((row) => row.querySelector("th a, td a")).filter(Boolean);
    const row = document.activeElement.closest("main tbody tr");
    const at = row ? links.findIndex((link) => row.contains(link)) : by > 0 ? -1 : links.length;
    links[Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
  }

  function choose() {
    document.activeElement.closest("main tbody tr")?.querySelector("input[type=checkbox]")?.click();
  }

  const isTyped = (target) => target.closest("textarea, select, [contenteditable]")
    || (target.matches("input") && target.type !== "checkbox");

  addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (isOff || dialog.open || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey
      || !(target instanceof Element) || isTyped(target)) return;
    const hasGone = event.timeStamp - isGoing < 1_500;
    isGoing = 0;
    if (hasGone && pages.has(key)) pages.get(key).click();
    else if (key === "g") isGoing = event.timeStamp;
    else if (key === "/") document.getElementById("find").focus();
    else if (key === "j") move(1);
    else if (key === "k") move(-1);
    else if (key === "x") choose();
    else if (key === "?") open();
    else return;
    event.preventDefault();
  });

  button.addEventListener("click", open);
  box.addEventListener("change", () => {
    isOff = !box.checked;
    try { if (isOff) localStorage.setItem(OFF, ""); else localStorage.removeItem(OFF); } catch { /* The setting holds for this page only. */ }
  });
  button.hidden = false;
})();
