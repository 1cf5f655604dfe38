// Sets the colours before the first paint. It is no module, since modules run after it.
"use strict";
try {
	const chosen = localStorage.getItem("leadsman-theme");
	if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
	// A browser that stores nothing follows the system.
}
