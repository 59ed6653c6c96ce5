// Before the first paint: the colours that were chosen here, if any were.
(() => {
  let kept = null;
  try { kept = localStorage.getItem("holdfast-theme"); } catch { /* no storage: as the system says */ }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  document.documentElement.classList.add("js");
})();
