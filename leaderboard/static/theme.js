// Runs before the first paint: the chosen colours, and what is folded on a phone.
(function () {
  "use strict";
  try {
    var theme = localStorage.getItem("crlbench-theme");
    if (theme === "light" || theme === "dark") {
      document.documentElement.dataset.theme = theme;
    }
  } catch (error) {
    // Storage may be forbidden; then the system's choice holds.
  }
  document.documentElement.classList.add("js");

  // What a wide screen shows is folded on a phone, before it is painted.
  if (window.matchMedia("(max-width: 44rem)").matches) {
    var parsed = new MutationObserver(function (changes) {
      changes.forEach(function (change) {
        change.addedNodes.forEach(function (node) {
          if (node.nodeType === 1 && node.matches("details[data-wide]")) node.open = false;
        });
      });
    });
    parsed.observe(document.documentElement, { childList: true, subtree: true });
    document.addEventListener("DOMContentLoaded", function () { parsed.disconnect(); });
  }
})();
