// A long list of which only the rows on the screen exist. Heights are known before a row is made, so 10,000 devices
// scroll as 20 do.

const MARGIN = 400; // pixels above and below the screen whose rows exist too

export class Rows {
	/**
	 * @param box the element that holds the rows; it is as high as all of them together.
	 * @param make makes the row of a name: an element with a `draw` property.
	 * @param tall whether the row of a name is a low one, 0, a higher one, 1, or one of the highest, 2.
	 */
	constructor(box, make, tall) {
		this.box = box;
		this.make = make;
		this.tall = tall;
		this.names = [];
		this.tops = new Float64Array(1);
		this.places = new Map();
		this.shown = new Map();
		this.measure();
		const again = () => this.draw();
		addEventListener("scroll", again, { passive: true });
		addEventListener("resize", () => {
			this.measure();
			this.arrange(this.names);
		});
	}

	/** Read the heights from the style sheet. */
	measure() {
		const style = getComputedStyle(this.box);
		this.low = parseFloat(style.getPropertyValue("--row")) || 56;
		this.more = parseFloat(style.getPropertyValue("--row-error")) || 0;
		this.most = parseFloat(style.getPropertyValue("--row-long")) || 0;
		this.room = parseFloat(style.getPropertyValue("--error-room")) || Infinity;
	}

	/** The height of the row of a name. */
	height(name) {
		return this.low + [0, this.more, this.most][this.tall(name)];
	}

	/** Show these rows, in this order. */
	arrange(names) {
		this.names = names;
		this.places.clear();
		if (this.tops.length < names.length + 1) this.tops = new Float64Array(names.length * 2 + 1);
		let top = 0;
		names.forEach((name, i) => {
			this.places.set(name, i);
			this.tops[i] = top;
			top += this.height(name);
		});
		this.tops[names.length] = top;
		this.box.style.height = `${top}px`;
		this.draw();
	}

	/** The place in the list at a height. */
	find(height) {
		let low = 0, high = this.names.length;
		while (low < high) {
			const middle = (low + high) >> 1;
			if (this.tops[middle + 1] <= height) low = middle + 1;
			else high = middle;
		}
		return low;
	}

	/** Make the rows that are on the screen, and remove the others. `changed`: only these have new contents; without it,
	 * all are drawn. */
	draw(changed) {
		if (!this.box.offsetParent) return;
		const above = -this.box.getBoundingClientRect().top;
		const first = this.find(above - MARGIN), last = Math.min(this.find(above + innerHeight + MARGIN), this.names.length - 1);
		const focused = document.activeElement, wanted = new Set();
		for (let i = first; i <= last; i++) wanted.add(this.names[i]);
		for (const [name, row] of this.shown)
			if (!wanted.has(name) && !(row.contains(focused) && this.places.has(name))) {
				row.remove();
				this.shown.delete(name);
			}
		let before = null;
		for (let i = last; i >= first; i--) {
			const name = this.names[i];
			let row = this.shown.get(name);
			const fresh = !row;
			if (fresh) this.shown.set(name, (row = this.make(name)));
			if (fresh || !changed || changed.has(name)) row.draw();
			this.place(row, i);
			if (row.nextSibling !== before || fresh) {
				const holds = row.contains(focused);
				this.box.insertBefore(row, before);
				if (holds) focused.focus({ preventScroll: true });
			}
			before = row;
		}
	}

	place(row, i) {
		const move = `translateY(${this.tops[i]}px)`;
		if (row.style.transform !== move) row.style.transform = move;
		row.style.height = `${this.tops[i + 1] - this.tops[i]}px`;
		if (row.ariaRowIndex !== String(i + 2)) row.setAttribute("aria-rowindex", i + 2);
	}

	/** Draw the rows that are there again, because time has passed. */
	tick() {
		if (this.box.offsetParent) for (const row of this.shown.values()) row.draw();
	}

	/** Move the focus by so many rows from the one that has it. */
	step(by) {
		const holder = [...this.shown].find(([, row]) => row.contains(document.activeElement));
		const from = holder ? this.places.get(holder[0]) : by > 0 ? -1 : this.names.length;
		this.focus(Math.max(0, Math.min(this.names.length - 1, from + by)));
	}

	/** Focus the link of the row at a place, scrolled to if need be. */
	focus(place) {
		const name = this.names[place];
		if (name === undefined) return;
		const box = this.box.getBoundingClientRect().top + scrollY, top = box + this.tops[place];
		const header = 120, bottom = box + this.tops[place + 1];
		if (top < scrollY + header) scrollTo(0, top - header);
		else if (bottom > scrollY + innerHeight - 20) scrollTo(0, bottom - innerHeight + 20);
		this.draw();
		this.shown.get(name)?.querySelector("a")?.focus({ preventScroll: true });
	}
}
