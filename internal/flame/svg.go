package flame

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
)

// Sizes of the picture, in pixels.
const (
	svgWidth   = 1200
	svgMargin  = 12
	svgTop     = 58 // title and subtitle
	svgRow     = 18
	svgLetter  = 6.63 // of the font, at 11 pixels
	svgBottom  = 44   // legend
	svgNothing = 60   // height of an empty graph
)

// svgLeast is how wide a frame has to be to be drawn; a picture of 50,000
// stacks would be too large for a viewer otherwise.
const svgLeast = 1.0

// svgStyle has the colours of the page; see page/draw.js.
const svgStyle = `
  svg { background: #fff; color: #1f2328; }
  text { fill: currentColor; }
  g text { fill: #14171a; font: 11px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; pointer-events: none; }
  g:hover rect { stroke: currentColor; stroke-width: 1.5; }
  .title { font-size: 17px; font-weight: 600; } .soft { fill: #59636e; }
  .kernel { fill: #f69a6b; } .native { fill: #f4c95c; } .go { fill: #65c7d5; } .python { fill: #8db9f1; } .java { fill: #7fc89b; } .php { fill: #c3a9ef; }
  .node { fill: #aed160; } .ruby { fill: #f097ad; } .unknown { fill: #bcc1c7; } .process, .all { fill: #cfd5de; } .thread { fill: #e1e5ea; } .rest { fill: #bcc1c7; opacity: .35; }
  .c-5 { fill: #4c90f0; } .c-4 { fill: #6ba2ef; } .c-3 { fill: #8ab4ef; } .c-2 { fill: #aac6ee; } .c-1 { fill: #c9d8ee; } .c0 { fill: #e8eaed; }
  .c1 { fill: #e9ceca; } .c2 { fill: #eab1a8; } .c3 { fill: #ea9585; } .c4 { fill: #eb7863; } .c5 { fill: #ec5c48; }
  @media (prefers-color-scheme: dark) {
    svg { background: #0f1419; color: #e6edf3; } .soft { fill: #9da7b1; }
    .kernel, .native, .go, .python, .java, .php, .node, .ruby, .unknown, .process, .thread, .all { opacity: .86; }
    .c-4 { fill: #5d95e3; } .c-3 { fill: #6e99d6; } .c-2 { fill: #7e9eca; } .c-1 { fill: #8fa2bd; } .c0 { fill: #a0a7b0; }
    .c1 { fill: #af989b; } .c2 { fill: #be8986; } .c3 { fill: #ce7a72; } .c4 { fill: #dd6b5d; }
  }
`

// SVG writes one value of s as a picture that stands by itself; what a frame is
// shows when the mouse rests on it. Frames of less than a thousandth of the
// width are drawn together. The error is w's, or an UnknownValue.
func SVG(w io.Writer, s *observe.Stacks, o Options) error {
	return newModel(byFunction, s).svg(w, o)
}

// DiffSVG writes a picture that compares two windows: as wide as the later one,
// red what has a larger share of it, blue what has a smaller one.
func DiffSVG(w io.Writer, p Pair, o Options) error {
	return p.model().svg(w, o)
}

// svgPicture is a picture on its way out.
type svgPicture struct {
	*bufio.Writer
	m       *model
	o       Options
	value   int
	tree    tree
	width   float64 // of the whole picture
	scale   float64 // pixels for a value of one
	deepest int
	kinds   map[observe.FrameKind]bool // that are drawn
}

func (m *model) svg(w io.Writer, o Options) error {
	value, err := o.value(m)
	if err != nil {
		return err
	}
	p := &svgPicture{Writer: bufio.NewWriter(w), m: m, o: o, value: value, tree: m.tree(value, o.roots()), width: svgWidth, kinds: map[observe.FrameKind]bool{}}
	if o.Width > 0 {
		p.width = float64(max(o.Width, 200))
	}
	if total := p.tree[0].total[m.side()]; total > 0 {
		p.scale = (p.width - 2*svgMargin) / float64(total)
	}
	p.deepest = p.depth(0, 0)
	height := svgTop + svgBottom + svgNothing
	if p.scale > 0 {
		height = svgTop + svgBottom + (p.deepest+1)*svgRow
	}
	p.head(height)
	if p.scale > 0 {
		p.frame(0, 0, svgMargin)
	} else {
		p.text(p.width/2, svgTop+svgNothing/2, `class="soft" text-anchor="middle"`, "No stack has such a value.")
	}
	p.legend(height)
	p.WriteString("</svg>\n")
	return p.Flush()
}

func (p *svgPicture) head(height int) {
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %d" width="%g" height="%d" font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="13">`+"\n", p.width, height, p.width, height)
	fmt.Fprintf(p, "<style>%s</style>\n", svgStyle)
	p.text(svgMargin, 24, `class="title"`, p.o.title(p.m))
	parts := []string{p.whole()}
	if s := p.o.subtitle(p.m, utc); s != "" {
		parts = append(parts, s)
	}
	p.text(svgMargin, 45, `class="soft"`, strings.Join(parts, " · "))
}

// whole says what the width of the picture is.
func (p *svgPicture) whole() string {
	if p.value >= len(p.m.types) {
		return "no values"
	}
	t, total := p.m.types[p.value], p.tree[0].total
	if p.m.compares {
		return fmt.Sprintf("%s: %s %s, %s %s", typeName(t), p.m.names[0], amount(total[0], t), p.m.names[1], amount(total[1], t))
	}
	return typeName(t) + " " + amount(total[0], t)
}

// depth is how many rows are drawn above the root.
func (p *svgPicture) depth(at int32, depth int) int {
	deepest := depth
	for _, child := range p.tree[at].children {
		if p.pixels(child) >= svgLeast {
			deepest = max(deepest, p.depth(child, depth+1))
		} else {
			return max(deepest, depth+1) // drawn together
		}
	}
	return deepest
}

func (p *svgPicture) pixels(at int32) float64 {
	return float64(p.tree[at].total[p.m.side()]) * p.scale
}

func (p *svgPicture) y(depth int) int {
	if p.o.Flame {
		depth = p.deepest - depth
	}
	return svgTop + depth*svgRow
}

// frame draws a branch and what is above it.
func (p *svgPicture) frame(at int32, depth int, x float64) {
	b := &p.tree[at]
	w := p.pixels(at)
	gap := 0.0
	if w > 3 {
		gap = 1
	}
	fmt.Fprintf(p, `<g><title>%s</title><rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"/>`, escape(p.tip(b)), p.class(at), x, p.y(depth), max(w-gap, 0.3), svgRow-1)
	if letters := int((w - 7) / svgLetter); letters >= 2 {
		p.text(x+3, float64(p.y(depth))+12.5, "", label(b.name, b.kind, letters))
	}
	p.WriteString("</g>\n")
	p.kinds[b.kind] = true
	for i, child := range b.children {
		w := p.pixels(child)
		if w < svgLeast {
			p.rest(b.children[i:], depth+1, x)
			return
		}
		p.frame(child, depth+1, x)
		x += w
	}
}

// rest draws together what is too narrow.
func (p *svgPicture) rest(list []int32, depth int, x float64) {
	w := 0.0
	for _, child := range list {
		w += p.pixels(child)
	}
	if w < svgLeast {
		return
	}
	fmt.Fprintf(p, `<g><title>%s narrower frames</title><rect class="rest" x="%.1f" y="%d" width="%.1f" height="%d"/></g>`+"\n", figure.Count(len(list)), x, p.y(depth), w, svgRow-1)
}

// class names the colour of a branch.
func (p *svgPicture) class(at int32) string {
	b := &p.tree[at]
	if p.m.compares {
		all := p.tree[0].total
		return fmt.Sprintf("c%d", int(math.Round(5*change(share(b.total[0], all[0]), share(b.total[1], all[1])))))
	}
	if at == 0 {
		return "all"
	}
	return string(b.kind)
}

// tip is what a frame says of itself.
func (p *svgPicture) tip(b *branch) string {
	t, all := p.m.types[p.value], p.tree[0].total
	lines := []string{b.name}
	if p.m.compares {
		for i, name := range p.m.names {
			lines = append(lines, fmt.Sprintf("%s: %s (%s)", name, figure.Percent(share(b.total[i], all[i])), amount(b.total[i], t)))
		}
	} else {
		line := fmt.Sprintf("%s, %s of all", amount(b.total[0], t), figure.Percent(share(b.total[0], all[0])))
		if b.parent >= 0 {
			line += fmt.Sprintf(", %s of its caller", figure.Percent(share(b.total[0], p.tree[b.parent].total[0])))
		}
		if b.self[0] > 0 {
			line += fmt.Sprintf("; itself %s", amount(b.self[0], t))
		}
		lines = append(lines, line)
	}
	if b.function >= 0 {
		lines = append(lines, p.m.functions[b.function].where())
	}
	return strings.Join(lines, "\n")
}

// where says what executes a function, and where its code is.
func (f *function) where() string {
	parts := []string{kindName(f.Kind)}
	if f.Module != "" {
		parts = append(parts, f.Module)
	}
	switch {
	case f.File != "" && f.lastLine > f.Line:
		parts = append(parts, fmt.Sprintf("%s:%d–%d", f.File, f.Line, f.lastLine))
	case f.File != "" && f.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d", f.File, f.Line))
	case f.File != "":
		parts = append(parts, f.File)
	}
	if f.Inline {
		parts = append(parts, "inlined")
	}
	return strings.Join(parts, ", ")
}

// legend explains the colours.
func (p *svgPicture) legend(height int) {
	x, y := float64(svgMargin), float64(height-18)
	if p.m.compares {
		for c := -5; c <= 5; c++ {
			fmt.Fprintf(p, `<rect class="c%d" x="%g" y="%g" width="14" height="12"/>`+"\n", c, x+float64(c+5)*14, y-10)
		}
		p.text(x+11*14+8, y, `class="soft"`, fmt.Sprintf("from %s to %s: blue is a smaller share, red a larger one; as wide as %s", p.m.names[0], p.m.names[1], p.m.names[1]))
		return
	}
	for _, kind := range kindOrder {
		if !p.kinds[kind] {
			continue
		}
		name := kindName(kind)
		fmt.Fprintf(p, `<rect class="%s" x="%g" y="%g" width="12" height="12" rx="2"/>`+"\n", kind, x, y-10)
		p.text(x+18, y, "", name)
		x += 18 + float64(len(name))*7.4 + 22
	}
}

func (p *svgPicture) text(x, y float64, attributes, text string) {
	if attributes != "" {
		attributes = " " + attributes
	}
	fmt.Fprintf(p, `<text x="%.1f" y="%.1f"%s>%s</text>`, x, y, attributes, escape(text))
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder never fails
	return strings.ReplaceAll(b.String(), "&#xA;", "\n")
}
