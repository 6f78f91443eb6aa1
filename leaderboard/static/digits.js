// Numbers as text, with the digits that an interval supports: the rule of crlbench/base/wording.py.
(function () {
  "use strict";
  const crlbench = (window.crlbench = window.crlbench || {});
  const PLACES = 2;
  const NARROW = 0.02;

  /** Decimals of a number with these ends of its interval; null for none. */
  crlbench.places = function (ends) {
    if (!ends) return PLACES;
    const hidden = ends.some((end) => end !== 0 && Math.abs(end) < 0.5 * 10 ** -PLACES);
    return PLACES + (ends[1] - ends[0] < NARROW || hidden ? 1 : 0);
  };

  /** Fixed decimals with a real minus sign; a dash for none; never a negative zero. */
  crlbench.number = function (value, digits, signed) {
    if (value === null || value === undefined) return "–";
    const text = Math.abs(value).toFixed(digits === undefined ? PLACES : digits);
    if (Number(text) === 0) return text;
    return (value < 0 ? "−" : signed ? "+" : "") + text;
  };

  /** Both ends of an interval in brackets; a dash for none. */
  crlbench.span = function (ends, signed) {
    if (!ends) return "–";
    const digits = crlbench.places(ends);
    return `[${ends.map((end) => crlbench.number(end, digits, signed)).join(", ")}]`;
  };
})();
