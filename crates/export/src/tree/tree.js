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

  // The callers of the first row below the bar that are scrolled out of view, innermost last.
  function showCallers() {
    const bottom = bar.getBoundingClientRect().bottom;
    const right = tree.getBoundingClientRect().right - 2;
    const row = document.elementFromPoint(right, bottom + 8)?.closest("li, summary");
    const above = [];
    if (row && tree.contains(row)) {
      for (let at = row.parentElement; at && at !== tree; at = at.parentElement) {
        if (at.localName !== "details") continue;
        const summary = at.firstElementChild;
        if (summary !== row && summary.getBoundingClientRect().top < bottom) above.unshift(summary);
      }
    }
    const lines = above.map((summary, level) => {
      const name = summary.querySelector(".stackhound-frame").textContent;
      const line = element("li", { textContent: `${level}: ${name}` });
      line.addEventListener("click", () => reveal(summary));
      return line;
    });
    callers.replaceChildren(...lines.slice(-CALLERS));
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
