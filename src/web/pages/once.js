// One click, one deed.
//
// Owns: the second of two clicks on a button, which sends nothing. Never: keeps a form from being sent again by somebody
// who has seen that nothing happened.
"use strict";
(() => {
  const TWICE_WITHIN = 3_000;
  let sent = new WeakMap();
  // A page to which a reader goes back may be the same one.
  addEventListener("pageshow", () => { sent = new WeakMap(); });
  addEventListener("submit", (event) => {
    const { target: form, timeStamp } = event;
    if (event.defaultPrevented || form.method !== "post") return;
    if (timeStamp - sent.get(form) < TWICE_WITHIN) event.preventDefault();
    else sent.set(form, timeStamp);
  });
})();
