"use strict";
document.documentElement.classList.add("js");
// A command to the clipboard; where there is none (an old browser, a sandbox), it is selected for the keyboard.
document.querySelectorAll(".copy").forEach((button) => button.addEventListener("click", async () => {
  const code = button.parentElement.querySelector("code");
  try { await navigator.clipboard.writeText(code.textContent); button.textContent = "Copied"; }
  catch { getSelection().selectAllChildren(code); button.textContent = "Selected"; }
}));
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((folded) => { folded.open = true; }));
const save = document.getElementById("save");
if (save) save.addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([document.getElementById("run").textContent], { type: "application/json" }));
  link.download = "run.json";
  link.click();
});
