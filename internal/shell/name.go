package shell

import (
	"fmt"
	"slices"
	"strings"
)

// What programs do with their words is not the shell's business, and names from
// outside can be anything: these types say how a program is given one.

// Word is a value that its program takes as it is, also with a dash at its start:
// the argument of an option, or what follows a keyword, as in "dev NAME" of ip(8).
type Word string

// Operand is a value of a program that knows "--" (getopt(3), as in systemctl, or
// Go's pflag, as in docker): where it begins with a dash that comes before it.
type Operand string

// Path is a name in the file system: where it begins with a dash, "./" comes
// before it.
type Path string

// Text is words of a sentence, which only a note may hold.
type Text string

// name is a value that has to be well-formed, lest its program take it for
// something else.
type name interface{ check() error }

// Unit is the name of a unit of systemd. Others are taken as patterns by systemctl
// (systemd.unit(5): letters, digits, and ":-_.\@").
type Unit string

func (u Unit) check() error {
	if !within(string(u), ":-_.\\@") || len(u) > 255 {
		return fmt.Errorf("%s is no name of a unit", Show(string(u)))
	}
	return nil
}

// NFT is the name of a table, chain or set of nftables: nft(8) puts its words
// together and reads them as its own language, in which other names cannot be
// written (scanner.l of nftables, {string}).
type NFT string

func (n NFT) check() error {
	first := ""
	if n != "" {
		first = string(n[:1])
	}
	if !within(string(n), "/-_.") || !within(first, "_.") || first >= "0" && first <= "9" {
		return fmt.Errorf("nft cannot be given %s as a name", Show(string(n)))
	}
	return nil
}

// NFTExpr is text in the language of nft(8).
type NFTExpr struct {
	text    string
	problem error
}

func (e NFTExpr) check() error   { return e.problem }
func (e NFTExpr) String() string { return e.text }

// NFTText makes text for nft of a constant, in which every %s stands for a name or
// a number. A name that is no identifier is put into double quotes, in which only
// one of them means anything (scanner.l of nftables, {quotedstring}).
func NFTText(format constant, values ...any) NFTExpr {
	e := NFTExpr{}
	values = slices.Clone(values)
	for i, v := range values {
		s, ok := v.(string)
		if !ok || NFT(s).check() == nil {
			continue
		}
		if !printable(s) || strings.ContainsAny(s, `"\`) {
			e.problem = NFT(s).check()
		}
		values[i] = `"` + s + `"`
	}
	e.text = fmt.Sprintf(string(format), values...)
	return e
}

// NFTRule is a rule as nft lists it. It must not end and begin another command.
type NFTRule string

func (r NFTRule) check() error {
	quoted := false
	for i := range len(r) {
		switch c := r[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' || c < ' ' || !quoted && strings.IndexByte(";#$", c) >= 0:
			return fmt.Errorf("nft cannot be given %s as a rule", Show(string(r)))
		}
	}
	if quoted {
		return fmt.Errorf("nft cannot be given %s as a rule", Show(string(r)))
	}
	return nil
}

// Sysctl is the name of a kernel parameter, with dots or slashes; a value may
// follow after "=". sysctl(8) takes "*", "?" and "[" for patterns and a dash at
// the start for "ignore errors".
type Sysctl string

func (s Sysctl) check() error {
	key, _, _ := strings.Cut(string(s), "=")
	key = strings.TrimRight(key, " ")
	if !within(key, "./-_@:+%,") || strings.HasPrefix(key, "-") || strings.Contains("/"+strings.ReplaceAll(key, ".", "/")+"/", "//") {
		return fmt.Errorf("sysctl cannot be given %s", Show(string(s)))
	}
	return nil
}

// Host is the name or address of a host, as ssh(1) and dig(1) take it.
type Host string

func (h Host) check() error {
	if !within(string(h), ".-_:%") || strings.HasPrefix(string(h), "-") {
		return fmt.Errorf("%s is no name of a host", Show(string(h)))
	}
	return nil
}

// KubeName is the name of a container or an object of Kubernetes: the API server takes no
// others (RFC 1123), and in a patch they stand within JSON.
type KubeName string

func (n KubeName) check() error {
	if !within(string(n), "-.") || strings.HasPrefix(string(n), "-") {
		return fmt.Errorf("%s is no name of Kubernetes", Show(string(n)))
	}
	return nil
}

// within says that text is of letters, digits and the bytes of others, and not
// empty.
func within(text, others string) bool {
	for i := range len(text) {
		c := text[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(others, c) >= 0) {
			return false
		}
	}
	return text != ""
}

// inNote writes a value in a comment: sentences as they are where no shell would
// act on them, names as they would be pasted.
func inNote(value any) string {
	if c, ok := value.(Command); ok { // its words are quoted
		return both(c.line, c.note)
	}
	text := fmt.Sprint(value)
	if _, ok := value.(Text); ok {
		quiet := printable(text)
		for i := range len(text) {
			c := text[i]
			quiet = quiet && (c >= 0x80 || c == ' ' || c == '=' || plain(c, i, false))
		}
		if quiet {
			return text
		}
	}
	return Show(text)
}
