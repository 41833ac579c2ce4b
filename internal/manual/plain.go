package manual

import (
	"strings"

	"github.com/slowray/slowray/internal/printable"
)

// unroff takes away what roffInline and the fonts have put in.
var unroff = strings.NewReplacer(`\e`, `\`, `\-`, "-", `\(aq`, "'", `\(ga`, "`", `\(ha`, "^", `\(ti`, "~", `\(dq`, `"`, `\fB`, "", `\fI`, "", `\fR`, "", `\&`, "")

// Plain formats what Page wrote, for a terminal of a host that has no man(1).
func Plain(page string, width int) string {
	var out strings.Builder
	var paragraph []string
	in := 7
	flush := func() {
		if len(paragraph) > 0 {
			for _, l := range printable.Wrap(strings.Join(paragraph, " "), max(width-in, 20)) {
				out.WriteString(strings.Repeat(" ", in) + l + "\n")
			}
		}
		paragraph = nil
	}
	asItIs, tag := false, false
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		request, rest, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(line, ".") {
			request, rest = "", line
		}
		text := unroff.Replace(strings.Trim(rest, `"`))
		switch request {
		case ".TH":
		case ".SH", ".SS":
			flush()
			in = 7
			out.WriteString("\n" + map[string]string{".SH": "", ".SS": "   "}[request] + text + "\n")
		case ".PP", ".TP":
			flush()
			out.WriteByte('\n')
			in, tag = 7, request == ".TP"
		case ".nf", ".fi":
			flush()
			asItIs = request == ".nf"
		default:
			switch {
			case asItIs:
				out.WriteString(strings.Repeat(" ", in) + text + "\n")
			case tag:
				out.WriteString(strings.Repeat(" ", in) + text + "\n")
				in, tag = 14, false
			default:
				paragraph = append(paragraph, text)
			}
		}
	}
	flush()
	return strings.TrimPrefix(out.String(), "\n")
}
