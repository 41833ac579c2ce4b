package page_test

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// faultsScript lists what is wrong with how the view is laid out: words that stand on
// each other, and words that can hardly be read on their ground (WCAG 2.2, 1.4.3: 4.5,
// of large ones 3).
const faultsScript = `(() => {
	const faults = [], words = [];
	const rgb = (text) => (text.match(/[\d.]+/g) || []).map(Number);
	const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((a, c, i) => a + c * [0.2126, 0.7152, 0.0722][i], 0);
	const over = (top, under) => { const a = top[3] ?? 1; return [0, 1, 2].map((i) => top[i] * a + under[i] * (1 - a)); };
	const ground = (e) => {
		const layers = [];
		for (let at = e; at; at = at.parentElement) {
			const c = rgb(getComputedStyle(at).backgroundColor);
			if ((c[3] ?? 1) > 0) layers.push(c);
			if ((c[3] ?? 1) === 1) break;
		}
		return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
	};
	const label = (w) => JSON.stringify(w.text.slice(0, 30)) + " in " + w.e.tagName.toLowerCase() + "." + (w.e.getAttribute("class") || "") + " of ." + (w.e.parentElement.getAttribute("class") || w.e.parentElement.id);
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; n = walk.nextNode();) {
		const e = n.parentElement, look = getComputedStyle(e);
		if (!n.data.trim() || !e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || e.closest("option, select, .skip, .offstage, #tip, title, noscript, thead, :disabled, .hair")) continue;
		const range = document.createRange();
		range.selectNodeContents(n);
		let fixed = false;
		const clips = [];
		for (let at = e; at && at !== document.body; at = at.parentElement) {
			const s = getComputedStyle(at);
			fixed ||= s.position === "sticky" || s.position === "fixed";
			if (s.overflowX !== "visible" || s.overflowY !== "visible") clips.push(at.getBoundingClientRect());
		}
		for (const r of range.getClientRects()) {
			const box = { left: r.left, right: r.right, top: r.top, bottom: r.bottom };
			for (const c of clips) { box.left = Math.max(box.left, c.left); box.right = Math.min(box.right, c.right); box.top = Math.max(box.top, c.top); box.bottom = Math.min(box.bottom, c.bottom); }
			if (box.right - box.left > 2 && box.bottom - box.top > 2) words.push({ e, fixed, text: n.data.trim(), ...box });
		}
		const drawn = e instanceof SVGElement, color = rgb(drawn ? look.fill : look.color), box = drawn && e.ownerSVGElement.querySelector("rect") ? e.closest("g")?.querySelector("rect") : null;
		let under = ground(drawn ? e.ownerSVGElement.parentElement : e.matches(".mark .before, .mark .after") ? e.closest(".lane") : e); // a title next to its bar
		if (box && e.closest(".wait-node")) under = over(rgb(getComputedStyle(box).fill), under);
		const [a, b] = [light(over(color, under)), light(under)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05), size = parseFloat(look.fontSize), large = size >= 24 || size >= 18.6 && +look.fontWeight >= 700;
		if (ratio < (large ? 3 : 4.5)) faults.push("contrast " + ratio.toFixed(1) + ": " + label({ e, text: n.data.trim() }));
	}
	words.sort((a, b) => a.top - b.top);
	for (let i = 0; i < words.length; i++) for (let k = i + 1; k < words.length && words[k].top < words[i].bottom; k++) {
		const a = words[i], b = words[k], wide = Math.min(a.right, b.right) - Math.max(a.left, b.left), high = Math.min(a.bottom, b.bottom) - b.top;
		if (a.fixed !== b.fixed || wide < 3 || high < 5 || a.e === b.e) continue; // lines of one text share some of their height
		faults.push("overlap of " + Math.round(wide) + " × " + Math.round(high) + " px: " + label(a) + " and " + label(b));
	}
	if (document.documentElement.scrollWidth > innerWidth) faults.push("wider than the window: " + document.documentElement.scrollWidth);
	return [...new Set(faults)].slice(0, 8).join("\n");
})()`

// pixels is a picture of what is to be seen.
func (b *browser) pixels() image.Image {
	b.t.Helper()
	var picture []byte
	b.do(chromedp.CaptureScreenshot(&picture))
	img, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		b.t.Fatal(err)
	}
	return img
}

func bright(img image.Image, x, y int) float64 {
	r, g, b, _ := img.At(x, y).RGBA()
	return (0.2126*float64(r) + 0.7152*float64(g) + 0.0722*float64(b)) / 0xffff
}

// painted checks the pixels themselves: the ground has the brightness of its theme,
// and what has words is not empty.
func painted(img image.Image, dark bool, boxes map[string][4]float64) (faults []string) {
	size := img.Bounds()
	wrong, n := 0, 0
	for y := size.Min.Y; y < size.Max.Y; y += 3 {
		for x := size.Min.X; x < size.Max.X; x += 3 {
			if n++; (bright(img, x, y) > 0.5) == dark {
				wrong++
			}
		}
	}
	if share := float64(wrong) / float64(n); share > 0.35 { // words, bars and lines
		faults = append(faults, fmt.Sprintf("%.0f %% of the pixels are of the other theme", 100*share))
	}
	for name, box := range boxes {
		low, high := 1.0, 0.0
		for y := int(box[1]); y < min(int(box[3]), size.Max.Y); y++ {
			for x := int(box[0]); x < min(int(box[2]), size.Max.X); x++ {
				low, high = min(low, bright(img, x, y)), max(high, bright(img, x, y))
			}
		}
		if high-low < 0.3 {
			faults = append(faults, fmt.Sprintf("%s: nothing is drawn in %v", name, box))
		}
	}
	return faults
}

// boxesScript is where the first of some things stand that have words or lines in them.
const boxesScript = `Object.fromEntries(["#brand", "#views a[aria-current]", "main h1", ".verdict-line", "main table.requests tbody tr", ".finding summary", ".wait-node", ".waterfall .wf-row", ".layers li"].map((q) => [q, document.querySelector(q)?.getBoundingClientRect()]).filter(([, r]) => r?.width && r.top >= 0 && r.top < innerHeight - 12 && r.left >= 0).map(([q, r]) => [q, [r.left, r.top, r.right, r.bottom]]))`

// TestLayout looks at each view in each language, on a phone, a small and a large screen,
// light and dark.
func TestLayout(t *testing.T) {
	for _, language := range []string{"en", "zh"} {
		t.Run(language, func(t *testing.T) { layout(t, language) })
	}
}

func layout(t *testing.T, language string) {
	b := openAt(t, 1400, 900, &mock{}, "/?lang="+language)
	b.settle("timeline")
	slow := shop[0].requests(lossFrom, lossTo)[0]["id"].(string)
	for _, wide := range []int64{400, 1000, 1400} {
		b.do(emulation.SetDeviceMetricsOverride(wide, 900, 1, wide < 600))
		for _, theme := range []string{"light", "dark"} {
			for _, view := range append(views, "request") {
				hash := "#/?last=3600&theme=" + theme + "&view=" + view
				if view == "request" {
					hash += "&id=" + slow
				}
				b.goTo(hash, view)
				what := fmt.Sprintf("%s, %d px, %s", view, wide, theme)
				if faults := eval[string](b, faultsScript); faults != "" {
					t.Errorf("%s:\n%s", what, faults)
				}
				if faults := painted(b.pixels(), theme == "dark", eval[map[string][4]float64](b, boxesScript)); len(faults) > 0 {
					t.Errorf("%s:\n%s", what, strings.Join(faults, "\n"))
				}
				b.look(fmt.Sprintf("layout-%s-%s-%d-%s", language, view, wide, theme))
			}
		}
	}
	// Findings come first on a phone.
	b.do(emulation.SetDeviceMetricsOverride(400, 900, 1, true))
	b.goTo("#/?last=3600&theme=light", "timeline")
	if !eval[bool](b, `(() => { const top = (q) => document.querySelector(q).getBoundingClientRect().top; return top(".verdict-line") < top(".strip-findings") && top(".strip-findings") < top(".endpoints") && top(".verdict-line") < 200; })()`) {
		t.Error("on a phone the findings do not come first")
	}
}

// TestLayoutFails makes faults of the kinds that TestLayout looks for: it finds each.
func TestLayoutFails(t *testing.T) {
	b := open(t, 1000, 900, &mock{})
	b.goTo("#/?last=3600&theme=light", "timeline")
	for fault, rule := range map[string]string{
		"contrast": ".title h1, .facts dd { color: #b9bec4 }", "overlap": ".title { margin-bottom: -60px }", "wider than the window": ".center { width: 1500px }",
	} {
		b.do(chromedp.Evaluate(`(() => { const s = new CSSStyleSheet(); s.replaceSync(`+quote(rule)+`); document.adoptedStyleSheets = [s]; })()`, nil))
		if got := eval[string](b, faultsScript); !strings.Contains(got, fault) {
			t.Errorf("%s: found %q", rule, got)
		}
		b.do(chromedp.Evaluate(`document.adoptedStyleSheets = []`, nil))
	}
	boxes := eval[map[string][4]float64](b, boxesScript)
	if len(boxes) < 4 {
		t.Errorf("%d things are looked at: %v", len(boxes), boxes)
	}
	if got := painted(b.pixels(), true, boxes); len(got) != 1 {
		t.Errorf("light for dark: %q", got)
	}
	b.do(chromedp.Evaluate(`(() => { const s = new CSSStyleSheet(); s.replaceSync(".verdict-line { visibility: hidden }"); document.adoptedStyleSheets = [s]; })()`, nil))
	if got := painted(b.pixels(), false, boxes); len(got) != 1 || !strings.Contains(got[0], ".verdict-line") {
		t.Errorf("a line that is not drawn: %q", got)
	}
}
