// What lists of entries and of models share: the order of rows, a range of sizes, and the state of
// the page in the query of its address.
(function () {
  "use strict";
  const crlbench = (window.crlbench = window.crlbench || {});
  const texts = new Intl.Collator("en", { numeric: true });

  /** What a row is sorted by: a number where it looks like one, null where there is none. */
  function key(cell) {
    const value = cell.dataset.value ?? cell.textContent; // a text is sorted by itself
    if (!value) return null;
    return Number.isNaN(Number(value)) ? value : Number(value);
  }

  /**
   * Stable, in the order of the page among equals; what has no value comes last either way.
   * @param rows objects with the cells of a row
   */
  crlbench.sorted = function (rows, index, down) {
    const keyed = rows.map((one, place) => ({ one, place, key: key(one.cells[index]) }));
    keyed.sort((a, b) => {
      const before = a.place - b.place;
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || before;
      const numbers = typeof a.key === "number" && typeof b.key === "number";
      const found = numbers ? a.key - b.key : texts.compare(a.key, b.key);
      return (down ? -found : found) || before;
    });
    return keyed.map(({ one }) => one);
  };

  /** Makes the words of a head a button. */
  crlbench.headButton = function (cell, press) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", press);
  };

  /** The order after a press on a head: its first direction, then the other one. */
  crlbench.turned = function (order, name, cell) {
    const first = cell.dataset.down === undefined ? name : `-${name}`;
    return order === first ? (first === name ? `-${name}` : name) : first;
  };

  /** The heads that a table is sorted by: cell and place in the row, by key. */
  crlbench.headsOf = function (table) {
    const heads = new Map();
    [...table.tHead.rows[0].cells].forEach((cell, index) => {
      if (cell.dataset.key) heads.set(cell.dataset.key, { cell, index });
    });
    return heads;
  };

  /** A button behind a table that shows the rest of its rows. */
  crlbench.moreButton = function (table, press) {
    const more = document.createElement("button");
    more.type = "button";
    more.className = "quiet more";
    more.addEventListener("click", press);
    table.after(more);
    return more;
  };

  /**
   * What a form and the heads of its tables set.
   * @param tables a map of heads for each table
   * @param first the order of the page
   * @param changed called after every change
   * @returns {order, everything} order of the rows, and whether all of them are shown
   */
  crlbench.listen = function (form, tables, first, changed) {
    const view = { order: first, everything: false };
    const orders = form.elements.sort;
    const set = (some) => {
      Object.assign(view, some);
      changed();
    };
    tables.forEach((heads) =>
      heads.forEach(({ cell }, key) =>
        crlbench.headButton(cell, () => set({ order: crlbench.turned(view.order, key, cell) })),
      ),
    );
    form.addEventListener("input", ({ target }) =>
      set(target === orders ? { order: orders.value } : {}),
    );
    form.addEventListener("submit", (event) => event.preventDefault());
    form.querySelector("[data-reset]").addEventListener("click", () => {
      form.reset();
      set({ order: first, everything: false });
    });
    return view;
  };

  // The address ----------------------------------------------------------------------------------

  /** Whether the fragment of the address holds a state, as links of earlier sites do. */
  crlbench.stateInFragment = () => location.hash.includes("=");

  /** The state in the address. */
  crlbench.readState = function () {
    return new URLSearchParams(crlbench.stateInFragment() ? location.hash.slice(1) : location.search);
  };

  /** A state as a part of an address, where names of entries stay readable. */
  crlbench.stateText = (state) =>
    state.toString().replace(/%2C/g, ",").replace(/%2F/g, "/").replace(/%40/g, "@");

  /** Puts a state into the query of the address; a place on the page stays in its fragment. */
  crlbench.writeState = function (state) {
    const text = crlbench.stateText(state);
    const query = text ? `?${text}` : "";
    const place = crlbench.stateInFragment() ? "" : location.hash;
    if (query === location.search && place === location.hash) return;
    history.replaceState(null, "", `${location.pathname}${query}${place}`);
  };

  /** Calls back when the address holds another state than the page shows. */
  crlbench.onState = function (restore) {
    window.addEventListener("hashchange", () => crlbench.stateInFragment() && restore());
    window.addEventListener("popstate", () => crlbench.stateInFragment() || restore());
  };

  // A range of sizes -----------------------------------------------------------------------------

  const FACTORS = { "": 1, k: 1e3, m: 1e6, b: 1e9 };
  /** A size as it is shown, with three digits: a bound that is copied from a page is met. */
  const shown = (size) => Number(size.toPrecision(3));

  /** A number of parameters as people write it (500M, 1.5B, 1,000,000); null for anything else. */
  function parameters(text) {
    const found = /^((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?) *([kmb]?)$/i.exec(text.trim());
    return found && Number(found[1].replace(/,/g, "")) * FACTORS[found[2].toLowerCase()];
  }

  /**
   * The two fields of a form that hold a range; without them every size fits.
   * @returns {fits(size), restore(state), write(state), fault()}
   */
  crlbench.sizeRange = function (form) {
    const fields = [...form.querySelectorAll("input[data-size]")];
    const bound = (field) => (field.value.trim() ? parameters(field.value) : null);
    const wrong = () => fields.filter((field) => field.value.trim() && bound(field) === null);
    return {
      /** What has no size fits where no bound is set. */
      fits(size) {
        return fields.every((field) => {
          const limit = bound(field);
          if (limit === null) return true;
          if (size === null) return false;
          return field.dataset.size === "least"
            ? Math.max(size, shown(size)) >= limit
            : Math.min(size, shown(size)) <= limit;
        });
      },
      restore(state) {
        fields.forEach((field) => {
          field.value = state.get(field.name) || "";
        });
      },
      write(state) {
        fields.forEach((field) => bound(field) !== null && state.set(field.name, field.value.trim()));
      },
      /** How many bounds are set. */
      count: () => fields.filter((field) => bound(field) !== null).length,
      /** What is wrong with a field, in a sentence; empty where nothing is. */
      fault() {
        fields.forEach((field) => field.removeAttribute("aria-invalid"));
        wrong().forEach((field) => field.setAttribute("aria-invalid", "true"));
        return wrong()
          .map((field) => `“${field.value.trim()}” is no number of parameters; write 500M or 1.5B.`)
          .join(" ");
      },
    };
  };
})();
