// A page renews itself while somebody looks at it.
//
// Owns: listening to the page's own address, and changing the shown page into the one that the console sends, so
// that nothing moves under the reader's hand. Never: makes markup, or requests anything but this page: without the
// script, a page is the same, and as old as it says.
"use strict";
(() => {
  const main = document.getElementById("main");
  const bar = document.getElementById("live");
  const [word, age, button] = bar.children;
  // A stream that is silent for this long is lost.
  const SILENT = 40_000;
  let stream = null, isPaused = false, isPressed = false, heard = 0, delay = 1_000, timer = 0, fresh = null;

  function say(text, kind) {
    if (word.textContent !== text) word.textContent = text;
    bar.dataset.state = kind;
  }

  // ---- Being told ----

  async function listen() {
    clearTimeout(timer);
    const own = stream = new AbortController();
    let status = 0, hasEnded = false;
    const began = heard = performance.now();
    try {
      const response = await fetch(location.pathname + location.search, {
        headers: { Accept: "text/event-stream" }, cache: "no-store", signal: own.signal,
      });
      status = response.status;
      const isStream = (response.headers.get("Content-Type") || "").startsWith("text/event-stream");
      // A page that asks its reader a question stays as it is.
      if (status === 200 && !isStream) {
        isPaused = bar.hidden = true;
        own.abort();
        stream = null;
        return;
      }
      if (status === 200) {
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let text = "", read; !(read = await reader.read()).done;) {
          heard = performance.now();
          const events = (text + read.value).split("\n\n");
          text = events.pop();
          for (const event of events) if (own === stream) take(event.split("\n"));
        }
        hasEnded = true;
      }
    } catch { /* The stream ended, or nobody answers: both are treated alike. */ }
    if (own !== stream) return;
    stream = null;
    // An orderly end after a while: the console asks the reverse proxy again who this is.
    if (hasEnded && performance.now() - began > 10_000) return listen();
    if (status === 401) return say("signed out: load the page again", "off");
    if (status >= 400 && status < 500 && status !== 429) return say("not live", "off");
    say("reconnecting…", "away");
    timer = setTimeout(listen, delay);
    delay = Math.min(delay * 2, 10_000);
  }

  function stop() {
    clearTimeout(timer);
    const own = stream;
    stream = null;
    own?.abort();
  }

  function take(lines) {
    const name = lines.find((line) => line.startsWith("event: "))?.slice(7);
    const text = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
    if (name === "gone") { stop(); return say("this no longer exists", "off"); }
    if (name === "away") return say("the database does not answer", "away");
    if (name === "page") fresh = text;
    if (name === "page" || name === "read") { delay = 1_000; show(); }
    if (name === "read" && !fresh) main.querySelector(".asof .id").textContent = text;
  }

  // ---- Showing it ----

  // True while a change would move an element under the reader's hand.
  function isHeld() {
    const selection = getSelection();
    return isPressed || !selection.isCollapsed && selection.containsNode(main, true);
  }

  function show() {
    if (isPaused || document.hidden) return;
    if (fresh === null) return say("live", "on");
    if (isHeld()) return say("held", "away");
    const page = new DOMParser().parseFromString("<main>" + fresh + "</main>", "text/html");
    fresh = null;
    const focus = document.activeElement, held = underHand(), top = held?.getBoundingClientRect().top;
    children(main, page.querySelector("main"));
    if (held?.isConnected) scrollBy({ top: held.getBoundingClientRect().top - top, behavior: "instant" });
    if (focus?.isConnected && focus !== document.activeElement) focus.focus({ preventScroll: true });
    say("live", "on");
  }

  // The part that must stay in place: it has the focus, the pointer is about to press it, or it is being read.
  function underHand() {
    const at = document.activeElement;
    if (at !== main && main.contains(at)) return at;
    const hovered = main.querySelector("a:hover, button:hover, summary:hover, label:hover, input:hover");
    return hovered ?? (scrollY > 0 ? read() : null);
  }

  function read() {
    const at = document.elementFromPoint(innerWidth / 2, innerHeight / 3);
    return at !== main && main.contains(at) ? at : null;
  }

  // ---- Changing one tree into another ----

  const ROWS = new Set(["TR", "LI", "FORM"]);

  // Each child with its key, by which it is the same in both trees: its name, a row's first link, or its turn.
  function named(parent) {
    const turns = new Map(), found = new Map();
    for (const child of parent.childNodes) {
      let name = child.nodeName;
      if (child.nodeType === Node.ELEMENT_NODE) {
        const row = ROWS.has(name) && (child.getAttribute("action") ?? child.querySelector("a[href]")?.getAttribute("href"));
        name += " " + (child.id || child.getAttribute("aria-labelledby") || row || "");
      }
      const turn = turns.get(name) ?? 0;
      turns.set(name, turn + 1);
      found.set(name + " " + turn, child);
    }
    return found;
  }

  const isField = (node) => node.matches("input:not([type=hidden]), textarea, select");

  function isTyped(field) {
    if (field === document.activeElement) return true;
    if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
    if (field.options) return [...field.options].some((it) => it.selected !== it.defaultSelected);
    return field.value !== field.defaultValue;
  }

  // The reader has begun to fill it in.
  const isInUse = (node) => node.nodeType === Node.ELEMENT_NODE
    && [node, ...node.querySelectorAll("input, textarea, select")].some((it) => isField(it) && isTyped(it));

  function children(old, next) {
    const before = named(old), after = named(next);
    for (const [name, child] of before) {
      if (after.has(name)) child.classList?.remove("gone");
      else if (isInUse(child)) child.classList.add("gone");
      else child.remove();
    }
    let at = old.firstChild;
    for (const [name, child] of after) {
      while (at?.classList?.contains("gone")) at = at.nextSibling;
      const own = before.get(name);
      if (!own) old.insertBefore(document.importNode(child, true), at);
      else {
        // An element that moves loses the place to which it was scrolled; a text between two elements may move instead.
        while (own.nodeType === Node.ELEMENT_NODE && at !== own && at?.nodeType === Node.TEXT_NODE) at = at.nextSibling;
        if (own === at) at = at.nextSibling;
        else old.insertBefore(own, at);
        change(own, child);
      }
    }
  }

  function change(old, next) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== next.data) old.data = next.data;
      return;
    }
    // The reader's own input stays: everything that was typed, ticked or opened.
    if (isField(old)) return;
    const isOwn = (name) => name === "open" && old.nodeName === "DETAILS";
    for (const { name, value } of next.attributes) {
      if (!isOwn(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!isOwn(name) && !next.hasAttribute(name)) old.removeAttribute(name);
    }
    children(old, next);
  }

  // ---- The place in a wide graph ----

  // A graph that is wider than its box begins at the first node that failed or goes on. The page does not move, and after
  // its load no graph does.
  function showNode() {
    const node = main.querySelector(".picture .node:is(.is-failed, .is-queued, .is-running, .is-retrying, .is-waiting)");
    const box = node?.closest(".picture");
    if (!box) return;
    const at = node.getBoundingClientRect(), within = box.getBoundingClientRect();
    if (at.left < within.left || at.right > within.right) {
      box.scrollLeft += (at.left + at.right - within.left - within.right) / 2;
    }
  }

  // ---- The reader ----

  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? "Resume" : "Pause";
    if (isPaused) { stop(); say("paused", "off"); } else listen();
  });
  addEventListener("pointerdown", () => { isPressed = true; });
  // The click follows it.
  for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => setTimeout(() => { isPressed = false; }));
  // A browser has few connections to a host, and a page that nobody sees needs no stream.
  document.addEventListener("visibilitychange", () => {
    if (isPaused) return;
    if (document.hidden) stop(); else { delay = 1_000; listen(); }
  });
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => { if (event.persisted && !isPaused) listen(); });
  setInterval(() => {
    const silent = performance.now() - heard;
    if (stream && silent > SILENT) { stop(); listen(); }
    age.textContent = bar.dataset.state === "on" && silent > 2_500 ? Math.round(silent / 1_000) + " s ago" : "";
    if (fresh !== null && stream) show();
  }, 500);
  bar.hidden = false;
  showNode();
  say("reconnecting…", "away");
  if (!document.hidden) listen();
})();
