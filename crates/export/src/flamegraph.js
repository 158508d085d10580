"use strict";
{
  const MARGIN = 10, PADDING = 3, ROW = 17;
  // The least number of rows of frames in a window that is high enough for the rest.
  const FRAMES_VISIBLE = 3;
  const svg = document.getElementById("flamegraph");
  const by = (id) => svg.getElementById(id);
  const [head, frames, search, reset, found, details] =
    ["head", "frames", "search", "reset", "found", "details"].map(by);
  const total = Number(frames.dataset.total);
  const isIcicle = svg.dataset.icicle === "true";
  // In the order of the image: each frame before its calls, from left to right.
  const all = Array.from(frames.children, (group) => {
    const [title, rect, text] = group.children;
    const name = title.textContent;
    return {
      group, rect, text, title: name, name: name.slice(0, name.lastIndexOf(" (")),
      left: Number(group.dataset.x), weight: Number(group.dataset.w), row: Number(rect.getAttribute("y")),
    };
  });
  const lines = Array.from(head.getElementsByClassName("line"), (line) => ({ line, full: line.dataset.text }));
  const frameOf = new Map(all.map((frame) => [frame.group, frame]));
  let zoomed = all[0], character = 7.3;

  const width = () => svg.getBoundingClientRect().width;

  // The length of the start of a text that fits into a number of columns. Other characters than
  // ASCII may be wider.
  function fitting(text, columns) {
    let used = 0, end = 0;
    for (const c of text) {
      used += c <= "~" ? 1 : 2;
      if (used > columns) break;
      end += c.length;
    }
    return end;
  }

  // The start of a text that fits into a width.
  function fitted(text, room) {
    const columns = Math.floor(room / character);
    if (fitting(text, columns) === text.length) return text;
    const end = fitting(text, columns - 2);
    return end > 0 ? text.slice(0, end) + "…" : "";
  }

  // Lines of the header continue below where they are too long.
  function wrapped(text, room) {
    const parts = [];
    for (let rest = text; rest !== ""; ) {
      let part = rest.slice(0, fitting(rest, Math.floor(room / character))) || rest;
      const space = part.lastIndexOf(" ");
      if (part.length < rest.length && space > 0) part = part.slice(0, space);
      parts.push(part);
      rest = rest.slice(part.length).trimStart();
    }
    return parts;
  }

  // The lines of the header. In a low window, the longest ones are cut, so that frames stay visible.
  function headLines(limit) {
    const room = width() - 2 * MARGIN;
    const parts = lines.map(({ full }) => wrapped(full, room));
    for (let rows = parts.flat().length; rows > limit; rows -= 1) {
      const longest = parts.reduce((longest, next) => (next.length > longest.length ? next : longest));
      if (longest.length <= 1) break;
      longest.pop();
      longest.push(fitted(`${longest.pop()} …`, room));
    }
    return parts;
  }

  function layoutHead() {
    const legend = by("legend");
    const legendRows = 1 + Math.max(0, ...Array.from(legend.children, (child) => Number(child.getAttribute("y")))) / ROW;
    const others = Math.floor(legendRows) + 2.5 + FRAMES_VISIBLE;
    const texts = headLines(Math.floor(window.innerHeight / ROW - others));
    let row = 0;
    for (const [number, { line }] of lines.entries()) {
      const parts = texts[number];
      line.textContent = "";
      line.setAttribute("y", (row + 1) * ROW + 2);
      for (const [index, part] of parts.entries()) {
        const span = document.createElementNS(svg.namespaceURI, "tspan");
        span.setAttribute("x", MARGIN);
        if (index > 0) span.setAttribute("dy", ROW);
        span.textContent = part;
        line.append(span);
      }
      row += parts.length;
    }
    legend.setAttribute("transform", `translate(${MARGIN},${row * ROW + 8})`);
    const controls = (row + Math.floor(legendRows) + 1) * ROW + 6;
    by("controls").setAttribute("transform", `translate(0,${controls})`);
    const top = controls + 1.5 * ROW;
    by("cover").setAttribute("height", top);
    frames.setAttribute("y", top);
    svg.setAttribute("height", top + ROW * Number(svg.dataset.rows) + MARGIN);
  }

  // Shows the enlarged frame over the whole width, its callers, and its calls.
  function layoutFrames() {
    const space = width() - 2 * MARGIN;
    frames.setAttribute("width", space);
    const { left, weight, row } = zoomed;
    const changes = all.map((frame) => {
      const isInside = frame.left >= left && frame.left + frame.weight <= left + weight;
      const isOutside = frame.left <= left && frame.left + frame.weight >= left + weight;
      const isOuter = frame !== zoomed && isOutside && (isIcicle ? frame.row < row : frame.row > row);
      if (isOuter) return [true, 0, 1];
      const isBelow = isIcicle ? frame.row >= row : frame.row <= row;
      return isInside && isBelow ? [false, (frame.left - left) / weight, frame.weight / weight] : null;
    });
    for (const [index, { group, rect, text, name }] of all.entries()) {
      const change = changes[index];
      group.classList.toggle("hidden", change === null);
      if (change === null) continue;
      const [isOuter, x, share] = change;
      group.classList.toggle("outer", isOuter);
      rect.setAttribute("x", x * space);
      rect.setAttribute("width", share * space);
      text.setAttribute("x", x * space + PADDING);
      text.textContent = fitted(name, share * space - 2 * PADDING);
    }
    reset.classList.toggle("hidden", zoomed === all[0] && found.textContent === "");
  }

  function layout() {
    layoutHead();
    layoutFrames();
  }

  function find(term) {
    let matches = () => false, until = 0, sum = 0;
    if (term !== "") {
      try {
        const pattern = new RegExp(term, "i");
        matches = (name) => pattern.test(name);
      } catch {
        matches = (name) => name.includes(term);
      }
    }
    for (const { group, name, left, weight } of all) {
      const isFound = matches(name);
      group.classList.toggle("found", isFound);
      // Calls of a found frame do not count again.
      if (isFound && left >= until) {
        sum += weight;
        until = left + weight;
      }
    }
    const share = ((100 * sum) / total).toFixed(2);
    found.textContent = term === "" ? "" : fitted(`${share} % found: ${term}`, width() - 130 - 2 * MARGIN);
    history.replaceState(null, "", "#" + encodeURIComponent(term));
  }

  function ask() {
    const term = prompt("Find frames whose name matches this regular expression:", "");
    if (term !== null) find(term);
    layoutFrames();
  }

  function pinHead() {
    head.setAttribute("transform", `translate(0,${window.scrollY})`);
  }

  const isEnter = (event) => event.key === "Enter" || event.key === " ";

  // Whether a button is at the place of an event, which is pressed then.
  function press(event) {
    if (event.target === search) ask();
    else if (event.target === reset) {
      zoomed = all[0];
      find("");
      layoutFrames();
    } else return false;
    return true;
  }

  const frameAt = (event) => frameOf.get(event.target.closest("#frames > g"));
  svg.addEventListener("click", (event) => {
    const frame = frameAt(event);
    if (!frame) return press(event);
    zoomed = frame;
    layoutFrames();
  });
  svg.addEventListener("mouseover", (event) => {
    const frame = frameAt(event);
    details.textContent = frame ? fitted(frame.title, width() - 2 * MARGIN) : "";
  });
  window.addEventListener("keydown", (event) => {
    if (event.key === "F3" || ((event.ctrlKey || event.metaKey) && event.key === "f")) {
      event.preventDefault();
      ask();
    } else if (isEnter(event) && press(event)) event.preventDefault();
  });
  window.addEventListener("resize", layout);
  window.addEventListener("scroll", pinHead);

  svg.removeAttribute("viewBox");
  svg.setAttribute("width", "100%");
  by("controls").classList.remove("hidden");
  search.textContent = "M".repeat(100);
  character = search.getComputedTextLength() / 100 || character;
  search.textContent = "Search";
  layout();
  if (location.hash !== "") {
    let term = location.hash.slice(1);
    try {
      term = decodeURIComponent(term);
    } catch {
      // The address was typed.
    }
    find(term);
    layoutFrames();
  }
  // The outermost frames of a flame graph are at its end.
  history.scrollRestoration = "manual";
  window.addEventListener("load", () => {
    if (!isIcicle) window.scrollTo(0, document.documentElement.scrollHeight);
    // The event of the scroll comes later.
    pinHead();
  });
}
