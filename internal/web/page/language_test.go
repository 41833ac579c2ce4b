package page_test

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/slowray/slowray/internal/language"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/web/page"
)

var (
	htmlText = regexp.MustCompile(`aria-label="([^"]+)"|<(?:a class="skip"|p class="wait")[^>]*>([^<]+)<`)
	places   = regexp.MustCompile(`\{\d\}`)
	// sentence is a text that people read: of several words, or with a capital letter or
	// what stands between sentences at its ends.
	sentence = regexp.MustCompile(`[A-Za-z]{2}\S* \S|^[A-Z][a-z]|^[ ,;.(·–]+[A-Za-z]|[A-Za-z][:,.]? $`)
	// unread are properties and functions whose texts are none.
	unread = []string{"transform", "querySelector", "querySelectorAll", "closest", "matchMedia", "===", "a key", "class", "data-key", "key", "font-family", "DOMException"}
	// untranslated are texts that are the same in each language, and that nobody reads.
	untranslated = []string{"slowray record", "slowray record --labels", "slowray why", "pid {1}", "Linux {1}", "slowray {1}", "Go", "Python", "Java", "PHP", "Node.js", "Ruby", "Enter", "Esc", "English",
		"{1} ms", "{1} s", "{1} min", " {1} min", "{1} h{2}", "{1} B", "GiB", "MiB", "KiB", "{1}{2} · slowray", "# back: {1}", `ssh -L 7788:127.0.0.1:7788 {1}\n{2}localhost:7788/{3}`,
		"M{1} {2}", "L{1} {2}", "L{1} {2}{3}", "hsl({1} {2}% {3}%)", "12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace", "mono label", "input, select, textarea", "ArrowLeft", "ArrowRight", "cause {1}", "affected {1}",
		" of {1}", ", limit {1}"} // of evidence, which is English
)

// TestNothingUntranslated: each sentence in the scripts and in the HTML is marked for the
// catalogue of each language, which has it, and has no other.
func TestNothingUntranslated(t *testing.T) {
	used := map[string]string{}
	all := scripts(t)
	for _, x := range all {
		if core := strings.TrimSpace(x.text); x.tagged {
			used[core] = x.at
		} else if sentence.MatchString(places.ReplaceAllString(x.text, "")) && !slices.Contains(unread, x.of) && !slices.Contains(untranslated, x.text) {
			t.Errorf("%s: %q (of %q) is not say`…`", x.at, x.text, x.of)
		}
	}
	for _, name := range []string{"index.html", "fleet.html"} {
		b, err := fs.ReadFile(page.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range htmlText.FindAllStringSubmatch(string(b), -1) {
			used[m[1]+m[2]] = name
		}
	}
	if len(all) < 3000 || len(used) < 700 {
		t.Fatalf("only %d texts, %d of them translated: this test reads the scripts wrongly", len(all), len(used))
	}
	pages, err := language.Pages()
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) != len(language.Names())-1 {
		t.Errorf("pages in %d languages, of %q", len(pages), language.Names())
	}
	for name, words := range pages {
		for english, at := range used {
			if words[english] == "" {
				t.Errorf("%s: %q is not in the catalogue of %s", at, english, name)
			}
		}
		for english := range words {
			if used[english] == "" {
				t.Errorf("the catalogue of %s has %q, which no page says", name, english)
			}
		}
	}
}

// TestPartsHaveOneName: that of the command line, in both languages.
func TestPartsHaveOneName(t *testing.T) {
	b, err := fs.ReadFile(page.Files, "assets/parts.js")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := language.Pages()
	if err != nil {
		t.Fatal(err)
	}
	chinese, err := language.New("zh")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for p := range observe.NumParts {
		keys = append(keys, p.String())
	}
	for p := range observe.NumServerParts {
		keys = append(keys, p.String())
	}
	for _, key := range keys {
		name := observe.PartName(key)
		if !strings.Contains(string(b), `key: "`+key+`", name: say`+"`"+name+"`") {
			t.Errorf("parts.js does not call %s %q", key, name)
		}
		if got, want := pages["zh"][name]+" 40 %", chinese.Sprintf(name+" %s %%", "40"); got != want && key != observe.AckDelay.String() { // which no report has
			t.Errorf("%s is %q on the page and %q in a report", name, got, want)
		}
	}
}

// unmarkedScript lists what is to be read on the page that is neither the catalogue's nor
// the server's: names are in a bdi, commands in code and pre.
const unmarkedScript = `(() => {
	const found = new Set(), look = (text, e) => {
		const left = text.replace(/⟦.*⟧|⟪.*⟫|⟦[^⟧]*$|^[^⟦]*⟧/gs, "").replace(/\b(min|slowray|Linux|pid|req|Esc|Enter|TCP|SVG|PHP|[KMG]iB|Node.js|slow|timeout|nginx|php-fpm8.2|shop-php|node|containerd-shim|fluent-bit|stock-[a-z]+|pipe:\[\d+\]|[a-z]+ \(\d+\))|\/\S+/g, ""); // names of the story, of flags and of units
		if (/[a-z]{3}/i.test(left) && !e.closest("bdi, code, pre, kbd, .mono, .source, .name, .grounds, script, style, noscript, #lang, option[value*='|']")) found.add(JSON.stringify(left.trim().slice(0, 60)) + " in " + e.tagName + "." + (e.getAttribute("class") || e.id));
	};
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; n = walk.nextNode();) look(n.data, n.parentElement);
	for (const e of document.querySelectorAll("[aria-label], [title], [placeholder]")) for (const k of ["aria-label", "title", "placeholder"]) if (e.hasAttribute(k)) look(e.getAttribute(k), e);
	return [...found].join("\n");
})()`

// TestNothingEnglish looks at each view in Chinese: whatever is on it comes from the
// catalogue or from the server.
func TestNothingEnglish(t *testing.T) {
	m := &mock{marks: true}
	b := openAt(t, 1400, 900, m, "/?lang=zh#/?last=3600")
	b.settle("timeline")
	slow := shop[0].requests(lossFrom, lossTo)[0]["id"].(string)
	for _, view := range append(views, "request") {
		hash := "#/?last=3600&view=" + view
		if view == "request" {
			hash += "&id=" + slow
		}
		b.goTo(hash, view)
		if left := eval[string](b, unmarkedScript); left != "" {
			t.Errorf("%s:\n%s", view, left)
		}
	}
	b.do(chromedp.Evaluate(`document.getElementById("help").click()`, nil))
	if left := eval[string](b, unmarkedScript); left != "" {
		t.Errorf("help:\n%s", left)
	}
}

// TestLanguageIsChosen: the address wins over what was chosen before, that over the browser.
func TestLanguageIsChosen(t *testing.T) {
	b := open(t, 1000, 900, &mock{})
	shows := func(heading string) {
		t.Helper()
		b.until(`document.querySelector("#views a")?.textContent === "` + heading + `"`)
		b.settle("timeline")
	}
	shows("Time line")
	b.do(chromedp.Evaluate(`document.getElementById("lang").click()`, nil))
	shows("时间线")
	if got := eval[string](b, `document.documentElement.lang + " " + document.querySelector(".skip").textContent`); got != "zh-CN 跳到内容" {
		t.Error(got)
	}
	b.do(chromedp.Navigate(b.url + "/"))
	shows("时间线")
	b.do(chromedp.Navigate(b.url + "/?lang=en"))
	shows("Time line")
	b.do(chromedp.Navigate(b.url + "/?lang=xx"))
	shows("时间线")
}

// TestAsksInItsLanguage: what the server says is in the language of the page too.
func TestAsksInItsLanguage(t *testing.T) {
	m := &mock{asked: make(chan string, 100)}
	b := openAt(t, 1000, 900, m, "/?lang=zh")
	b.settle("timeline")
	for range 5 {
		if asked := <-m.asked; !strings.Contains(asked, "lang=zh") {
			t.Errorf("asks for %s", asked)
		}
	}
}
