// One of several parts at a time: a list of them, whose choice stands in the address.
(function () {
  "use strict";
  var groups = Array.prototype.map.call(document.querySelectorAll("[data-choose]"), function (home) {
    return {
      key: home.dataset.choose,
      parts: Array.prototype.slice.call(home.querySelectorAll("[data-choice]")),
      control: home.querySelector("[data-chooser]"),
    };
  }).filter(function (group) { return group.control; });

  function state() {
    return new URLSearchParams(location.hash.slice(1));
  }

  function show(group, wanted) {
    var known = group.parts.some(function (part) { return part.dataset.choice === wanted; });
    var chosen = known ? wanted : group.parts[0].dataset.choice;
    group.parts.forEach(function (part) { part.classList.toggle("current", part.dataset.choice === chosen); });
    group.control.querySelector("select").value = chosen;
  }

  function restore() {
    var wanted = state();
    groups.forEach(function (group) { show(group, wanted.get(group.key)); });
  }

  groups.forEach(function (group) {
    group.control.querySelector("select").addEventListener("change", function (event) {
      var next = state();
      // An address that names a place on the page is no state.
      Array.from(next.keys()).forEach(function (name) { if (!next.get(name)) next.delete(name); });
      next.set(group.key, event.target.value);
      history.replaceState(null, "", "#" + next);
      show(group, event.target.value);
    });
  });
  window.addEventListener("hashchange", restore);
  restore();
})();
