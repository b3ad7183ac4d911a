// What Material leaves without a name or out of the keyboard's reach.
const mend = () => {
  document.querySelectorAll(".md-search").forEach((search) => search.setAttribute("aria-label", "Search"));
  document.querySelectorAll(".md-code__nav").forEach((buttons) => buttons.setAttribute("role", "none"));
  document.querySelectorAll(".md-typeset pre > code, .md-typeset__scrollwrap").forEach((block) => {
    if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
    else block.removeAttribute("tabindex");
  });
};
mend();
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
addEventListener("resize", mend);
