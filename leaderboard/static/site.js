// What every page has: the switch between light and dark, buttons that copy the address, words with
// a definition, a menu that begins where the reader is, and places that open what folds them.
(function () {
  "use strict";
  var root = document.documentElement;
  var button = document.querySelector("[data-theme-toggle]");
  var dark = window.matchMedia("(prefers-color-scheme: dark)");

  function current() {
    return root.dataset.theme || (dark.matches ? "dark" : "light");
  }

  function say() {
    button.setAttribute("aria-pressed", String(current() === "dark"));
    button.lastElementChild.textContent = "Dark colours";
  }

  button.hidden = false;
  button.addEventListener("click", function () {
    var next = current() === "dark" ? "light" : "dark";
    root.dataset.theme = next;
    try {
      localStorage.setItem("crlbench-theme", next);
    } catch (error) {
      // The choice then holds for this page alone.
    }
    say();
  });
  dark.addEventListener("change", say);
  say();

  // On a phone the menu is wider than the screen.
  var here = document.querySelector(".bar [aria-current]");
  if (here) {
    var menu = here.closest("nav");
    var place = here.getBoundingClientRect().left - menu.getBoundingClientRect().left;
    menu.scrollLeft += place - (menu.clientWidth - here.offsetWidth) / 2;
  }

  // A finger has no hover: its first touch shows the definition, the second one follows the link.
  var shown = null;
  document.addEventListener("click", function (event) {
    var term = event.target.closest(".term");
    if (term && event.pointerType === "touch" && term !== shown) {
      event.preventDefault();
      term.focus();
    }
    shown = term;
  });

  // A place on the page is shown, also where it is folded.
  function reveal() {
    var place = document.querySelector(":target");
    if (!place) return;
    var home = place.closest("details") || place.querySelector("details.part");
    for (; home; home = home.parentElement.closest("details")) home.open = true;
    // Parts that are drawn when they come near have estimated heights, which would move the place.
    document.documentElement.classList.add("whole");
    place.scrollIntoView();
  }
  window.addEventListener("hashchange", reveal);
  window.addEventListener("load", reveal);
  reveal();

  /** A button that copies a text, and says whether it did. */
  function copying(copy, text, done, failed) {
    var label = copy.textContent;
    copy.setAttribute("aria-live", "polite");
    copy.addEventListener("click", function () {
      Promise.resolve().then(function () {
        return navigator.clipboard.writeText(text());
      }).then(
        function () { copy.textContent = done; },
        function () { copy.textContent = failed(); }
      ).then(function () {
        setTimeout(function () { copy.textContent = label; }, 2500);
      });
    });
  }

  document.querySelectorAll("[data-copy-link]").forEach(function (copy) {
    copying(copy, function () { return location.href; }, "Link copied", function () {
      return "Copy it from the address bar";
    });
  });

  document.querySelectorAll("[data-copy-text]").forEach(function (copy) {
    var source = document.getElementById(copy.dataset.copyText);
    copy.hidden = false;
    copying(copy, function () { return source.textContent; }, "Copied", function () {
      getSelection().selectAllChildren(source);
      return "Selected: copy it with the keyboard";
    });
  });
})();
