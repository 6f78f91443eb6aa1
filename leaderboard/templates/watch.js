"use strict";
/* Fetches the page again and puts what is new in place, so that nothing jumps. */
const parts = ["status", "main"];
const pause = () => new Promise((resume) => setTimeout(resume, 2000));
(async () => {
  for (;;) {
    await pause();
    if (document.hidden) continue;
    let text;
    try {
      text = await (await fetch("/", { cache: "no-store" })).text();
    } catch {
      document.getElementById("gone").hidden = false;
      continue;
    }
    document.getElementById("gone").hidden = true;
    const page = new DOMParser().parseFromString(text, "text/html");
    for (const name of parts) {
      const here = document.getElementById(name);
      const there = page.getElementById(name);
      if (there && here.innerHTML !== there.innerHTML) here.innerHTML = there.innerHTML;
    }
    document.title = page.title;
  }
})();
