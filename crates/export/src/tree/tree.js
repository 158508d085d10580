"use strict";
{
  const CALLERS = 3;
  const tree = document.querySelector(".stackhound-tree");
  const element = (name, properties) => Object.assign(document.createElement(name), properties);
  const [bar, callers] = [element("div", { id: "bar" }), element("ol", { id: "callers" })];
  const input = element("input", { type: "search", id: "find", placeholder: "module!function" });
  const count = element("output", { id: "count" });
  const label = element("label", { textContent: "Find " });
  label.append(input);
  bar.append(label, " ", count, callers);
  tree.before(bar);

  const names = Array.from(tree.querySelectorAll(".stackhound-frame"));
  let found = [], current = -1;

  function reveal(row) {
    for (let at = row.parentElement; at && at !== tree; at = at.parentElement) {
      if (at.localName === "details") at.open = true;
    }
    const top = row.getBoundingClientRect().top - bar.getBoundingClientRect().height - 40;
    window.scrollBy(0, top);
  }

  function show(index) {
    if (found.length === 0) return;
    found[current]?.classList.remove("current");
    current = (index + found.length) % found.length;
    found[current].classList.add("current");
    reveal(found[current]);
    count.textContent = `${current + 1} of ${found.length}`;
  }

  input.addEventListener("input", () => {
    for (const name of found) name.classList.remove("found", "current");
    const term = input.value.toLowerCase();
    found = term === "" ? [] : names.filter((name) => name.textContent.toLowerCase().includes(term));
    for (const name of found) name.classList.add("found");
    current = -1;
    count.textContent = term === "" || found.length > 0 ? "" : "not found";
    show(0);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") show(current + (event.shiftKey ? -1 : 1));
  });

  // The callers of a row, outermost first. Rows at deep levels follow each other in one list.
  function callersOf(row) {
    const found = [];
    let level = Number(row.dataset.level);
    for (let at = row.previousElementSibling; at && level > 0; at = at.previousElementSibling) {
      if (at.localName !== "li" || !(Number(at.dataset.level ?? 0) < level)) continue;
      level = Number(at.dataset.level ?? 0);
      found.unshift(at);
    }
    for (let at = row.parentElement; at && at !== tree; at = at.parentElement) {
      if (at.localName === "details" && at.firstElementChild !== row) found.unshift(at.firstElementChild);
    }
    return found;
  }

  let shown = [];
  const lineOf = (event) => Array.prototype.indexOf.call(callers.children, event.target);
  function reach(event) {
    const caller = shown[lineOf(event)];
    if (caller) reveal(caller);
  }
  callers.addEventListener("click", reach);
  callers.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    reach(event);
  });

  // The callers of the first row below the bar that are scrolled out of view, innermost last.
  function showCallers() {
    const bottom = bar.getBoundingClientRect().bottom;
    const right = tree.getBoundingClientRect().right - 2;
    const row = document.elementFromPoint(right, bottom + 8)?.closest("li, summary");
    const isAbove = (caller) => caller.getBoundingClientRect().top < bottom;
    const above = row && tree.contains(row) ? callersOf(row).filter(isAbove) : [];
    shown = above.slice(-CALLERS);
    // Lines stay, so that the one with the focus keeps it.
    while (callers.children.length > shown.length) callers.lastChild.remove();
    for (const [index, caller] of shown.entries()) {
      const line = callers.children[index] ?? callers.appendChild(element("li", { tabIndex: 0, role: "button" }));
      const name = caller.querySelector(".stackhound-frame").textContent;
      line.textContent = `${above.length - shown.length + index}: ${name}`;
    }
  }

  let isPending = false;
  function later() {
    if (isPending) return;
    isPending = true;
    requestAnimationFrame(() => {
      isPending = false;
      showCallers();
    });
  }
  window.addEventListener("scroll", later);
  window.addEventListener("resize", later);
  tree.addEventListener("toggle", later, true);
  showCallers();
}
