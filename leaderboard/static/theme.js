// Runs before the first paint: the chosen colours, without a flash of the others.
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
})();
