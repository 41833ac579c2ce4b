package observe

import (
	"encoding/base64"
	"slices"
	"strings"
	"unicode"
)

// hidden stands for what was a secret.
const hidden = "***"

// CommandLine is a command line as an Observation keeps it: its arguments, which end
// in NUL as in /proc/PID/cmdline, joined by spaces, and *** for passwords, tokens
// and keys in them. What is one is known by the name that stands before it (a flag, a
// variable, a header, a parameter of a URL), by its place in a URL, and for programs
// that take a password by a short flag by that. Other words stay as they are.
func CommandLine(text string) string {
	if lower := strings.ToLower(text); !slices.ContainsFunc(hints, func(h string) bool { return strings.Contains(lower, h) }) {
		return strings.ReplaceAll(text, "\x00", " ")
	}
	var h hider
	args := strings.Split(text, "\x00")
	for i, a := range args {
		args[i] = h.argument(a)
	}
	return strings.Join(args, " ")
}

// hints are what is in every command line with something to hide: most have none.
var hints = []string{"pass", "pwd", "secret", "token", "cred", "key", "auth", "cookie", "psk", "://", "bearer", "basic", "@tcp(", "@unix(",
	"mysql", "maria", "mongo", "-cli", "curl", "ldap", "sqlcmd", "ipmitool"}

// shortFlags are the short flags that a program takes a password by.
type shortFlags struct {
	apart    string // "-a PASSWORD" or "-aPASSWORD"
	attached string // "-pPASSWORD"; what follows "-p" is something else
	user     string // "-u NAME:PASSWORD" or "-uNAME:PASSWORD"
}

// tools are the programs that do.
var tools = func() map[string]shortFlags {
	all := map[string]shortFlags{}
	for flags, names := range map[shortFlags]string{
		{attached: "p"}: "mysql mysqldump mysqladmin mysqlcheck mysqlimport mysqlshow mysqlslap mysqlbinlog mysqlpump mysqlsh mysql_upgrade mytop xtrabackup innobackupex mydumper " +
			"mariadb mariadb-dump mariadb-admin mariadb-check mariadb-import mariadb-show mariadb-slap mariadb-binlog mariadb-upgrade mariadb-backup mariabackup",
		{apart: "p"}: "mongo mongosh mongodump mongorestore mongoexport mongoimport mongostat mongotop sshpass",
		{apart: "a"}: "redis-cli valkey-cli keydb-cli",
		{apart: "w"}: "ldapsearch ldapadd ldapmodify ldapdelete ldapwhoami ldappasswd",
		{apart: "P"}: "sqlcmd bcp ipmitool",
		{user: "uU"}: "curl",
	} {
		for name := range strings.FieldsSeq(names) {
			all[name] = flags
		}
	}
	return all
}()

// hider goes over the arguments of a command line.
type hider struct {
	flags []shortFlags // of the programs that were named
	next  next         // what the next word is
	line  bool         // whether the next argument is a line for a shell: "-c", "-lc"
	quote byte         // a secret began with this quote, which has not come again
}

// next is what a word is by those before it.
type next int

const (
	anything next = iota
	secret
	userSecret // NAME:PASSWORD
	encoded    // NAME:PASSWORD in base64, or a word
)

const (
	blanks = " \t\n\r"
	quotes = `"'` + "`"
	opened = quotes + `\{[(,`
)

// argument is one argument. It may be a line of its own: of a shell (sh -c), of a
// process that has set its title, or of a header.
func (h *hider) argument(a string) string {
	line := h.line
	h.quote, h.line = 0, len(a) > 1 && a[0] == '-' && a[1] != '-' && strings.HasSuffix(a, "c")
	if h.next == secret && !strings.HasPrefix(a, "-") && !scheme(a) && a != "" {
		if name, rest, _ := strings.Cut(a, " "); scheme(name) {
			h.next = anything
			return name + " " + hide(rest)
		}
		h.next = anything
		return hide(a)
	}
	var out strings.Builder
	// What begins with the name is the value to its end, blanks and all, but in a
	// line for a shell.
	if i := strings.IndexByte(a, '='); i > 0 && !line && !strings.ContainsAny(a[:i], blanks) && secretName(a[:i]) && !strings.Contains(a[i+1:], "=") {
		return a[:i+1] + hide(a[i+1:])
	}
	for a != "" {
		n := strings.IndexAny(a, blanks)
		switch n {
		case 0:
			if h.quote == 0 {
				out.WriteByte(a[0])
			}
			a = a[1:]
			continue
		case -1:
			n = len(a)
		}
		out.WriteString(h.word(a[:n]))
		a = a[n:]
	}
	return out.String()
}

// hide is what stands for a value.
func hide(value string) string {
	switch strings.ToLower(value) {
	case "", "true", "false", "yes", "no", "on", "off", "none": // no secrets, and they say what is in use
		return value
	}
	return hidden
}

// scheme says whether a word is one of a header Authorization.
func scheme(w string) bool {
	return slices.Contains([]string{"bearer", "basic", "digest", "token", "apikey", "negotiate"}, strings.ToLower(strings.Trim(w, quotes)))
}

func (h *hider) word(w string) string {
	if h.quote != 0 {
		if i := strings.IndexByte(w, h.quote); i >= 0 {
			h.quote = 0
			return w[i:]
		}
		return ""
	}
	was := h.next
	h.next = anything
	if was != anything && !strings.HasPrefix(w, "-") {
		switch {
		case was == secret && scheme(w):
			h.next = secret
			return w
		case was == secret:
			return h.quoted(w)
		case was == userSecret:
			return hideUser(w)
		case was == encoded && isEncoded(strings.Trim(w, quotes)):
			return hidden
		}
	}
	bare := strings.TrimLeft(w, opened)
	if flags, ok := tools[strings.Trim(bare[strings.LastIndexByte(bare, '/')+1:], quotes+";")]; ok {
		h.flags = append(h.flags, flags)
		return w
	}
	if out, ok := h.short(w); ok {
		return out
	}
	switch trimmed := strings.Trim(bare, quotes); {
	case strings.EqualFold(trimmed, "bearer"):
		h.next = secret
		return w
	case strings.EqualFold(trimmed, "basic"):
		h.next = encoded
		return w
	case strings.HasPrefix(bare, "-") && !strings.ContainsAny(bare, "=:") && secretName(trimmed) && !switchName(trimmed),
		strings.HasSuffix(bare, ":") && secretName(lastName(strings.TrimRight(bare, quotes+":"))):
		h.next = secret
		return w
	case bare == "--user" || bare == "--proxy-user":
		h.next = userSecret
		return w
	case strings.HasPrefix(bare, "--user=") || strings.HasPrefix(bare, "--proxy-user="):
		name, value, _ := strings.Cut(w, "=")
		return name + "=" + hideUser(value)
	}
	return hideAddresses(h.values(w))
}

// short hides what a program that was named takes by a short flag.
func (h *hider) short(w string) (string, bool) {
	if len(w) < 2 || w[0] != '-' || w[1] == '-' {
		return "", false
	}
	flag, value := w[1:2], w[2:]
	for _, f := range h.flags {
		switch {
		case strings.Contains(f.attached+f.apart, flag) && value != "":
			return w[:2] + hidden, true
		case strings.Contains(f.apart, flag):
			h.next = secret
			return w, true
		case strings.Contains(f.user, flag) && value == "":
			h.next = userSecret
			return w, true
		case strings.Contains(f.user, flag):
			return w[:2] + hideUser(value), true
		}
	}
	return "", false
}

// quoted hides a value, to the end of its quotation.
func (h *hider) quoted(w string) string {
	if q := w[0]; strings.IndexByte(quotes, q) >= 0 {
		if i := strings.IndexByte(w[1:], q); i >= 0 {
			return string(q) + hidden + w[1+i:]
		}
		h.quote = q
		return string(q) + hidden
	}
	return hide(w)
}

// hideUser hides the password of NAME:PASSWORD.
func hideUser(w string) string {
	if name, password, ok := strings.Cut(w, ":"); ok && password != "" {
		return name + ":" + hidden
	}
	return w
}

// isEncoded says whether a word is NAME:PASSWORD in base64.
func isEncoded(w string) bool {
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(w, "="))
	return err == nil && strings.Contains(string(text), ":")
}

// values hides what follows names in a word: NAME=value, ?name=value&…, "name":"value",
// Name:value.
func (h *hider) values(w string) string {
	var out strings.Builder
	for at := 0; ; {
		i := strings.IndexAny(w[at:], "=:")
		if i < 0 {
			out.WriteString(w)
			return out.String()
		}
		at += i
		end := strings.TrimRight(w[:at], quotes+`\`)
		start := len(end) - len(lastName(end))
		value := w[at+1:]
		isValue := w[at] == '=' || len(end) < at || strings.Trim(end[:start], opened) == "" && !strings.HasPrefix(value, "/") && !strings.HasPrefix(end, "-")
		if !isValue || value == "" || !secretName(end[start:]) {
			at++
			continue
		}
		open := len(value) - len(strings.TrimLeft(value, quotes+`\`))
		n := h.valueEnd(value, open, strings.Trim(end[:start], opened) == "")
		out.WriteString(w[:at+1] + value[:open] + hide(value[open:n]))
		w, at = value[n:], 0
	}
}

func nameRune(r rune) bool {
	return r == '_' || r == '-' || r == '.' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

// maxNext is how far the next name with a value may reach behind a separator.
const maxNext = 64

// lastName is the name at the end of s.
func lastName(s string) string { return s[len(strings.TrimRightFunc(s, nameRune)):] }

// valueEnd is where a value ends: at the quote that it began with, or before the next
// name with a value; else it is all there is.
func (h *hider) valueEnd(value string, open int, first bool) int {
	if open > 0 {
		if i := strings.IndexAny(value[open:], string(value[open-1])+`\`); i >= 0 {
			return open + i
		}
		h.quote = value[open-1]
		return len(value)
	}
	for i, r := range value {
		if strings.ContainsRune("&;,", r) {
			rest := strings.TrimLeft(value[i+1:min(len(value), i+maxNext)], opened)
			n := strings.IndexFunc(rest, func(r rune) bool { return !nameRune(r) })
			if n > 0 && strings.IndexByte(`=:"`, rest[n]) >= 0 {
				return i
			}
		}
		if !first && i > 0 && strings.ContainsRune(quotes, r) {
			return i
		}
	}
	return len(value)
}

// hideAddresses hides passwords in URLs (RFC 3986, 3.2.1) and in data source names
// (user:password@tcp(host)).
func hideAddresses(w string) string {
	var out strings.Builder
	for {
		i := strings.Index(w, "://")
		if i < 0 {
			break
		}
		web := strings.HasSuffix(w[:i], "http") || strings.HasSuffix(w[:i], "https")
		out.WriteString(w[:i+3])
		w = w[i+3:]
		user := w[:userEnd(w)]
		w = w[len(user):]
		name, password, ok := strings.Cut(user, ":")
		switch {
		case ok && password != "":
			out.WriteString(name + ":" + hidden)
		case user != "" && web: // a token
			out.WriteString(hidden)
		default:
			out.WriteString(user)
		}
	}
	for _, mark := range []string{"@tcp(", "@unix("} {
		if i := strings.Index(w, mark); i >= 0 {
			start := strings.LastIndexAny(w[:i], "="+quotes) + 1
			w = w[:start] + hideUser(w[start:i]) + w[i:]
		}
	}
	out.WriteString(w)
	return out.String()
}

// userEnd is where the user ends of what follows "://", before the "@"; 0 where
// there is none. A password may have slashes that are not escaped: it is none where
// a port would be.
func userEnd(w string) int {
	host := strings.IndexAny(w, "/?#"+quotes)
	if host < 0 {
		host = len(w)
	}
	if i := strings.LastIndexByte(w[:host], '@'); i >= 0 {
		return i
	}
	_, port, ok := strings.Cut(w[:host], ":")
	if port, _, _ = strings.Cut(port, ","); !ok || strings.HasPrefix(w, "[") || port != "" && strings.Trim(port, "0123456789") == "" {
		return 0
	}
	return max(0, strings.LastIndexByte(w, '@'))
}

// secretName says whether a name is that of a secret, by its parts.
func secretName(name string) bool {
	name = strings.TrimLeft(name, "-")
	if name == "PWD" || name == "OLDPWD" { // the working directory
		return false
	}
	parts := nameParts(name)
	if len(parts) == 0 || slices.Contains(about, parts[len(parts)-1]) {
		return false
	}
	whole := strings.Join(parts, "")
	if slices.ContainsFunc(secretWords, func(s string) bool { return strings.Contains(whole, s) }) ||
		slices.ContainsFunc(parts, func(p string) bool { return strings.HasSuffix(strings.TrimRight(p, "0123456789"), "token") }) {
		return true
	}
	last := parts[len(parts)-1]
	return last != "bypass" && last != "compass" && slices.ContainsFunc(secretEnds, func(s string) bool { return strings.HasSuffix(last, s) })
}

// switchName says whether a flag takes no value.
func switchName(name string) bool {
	parts := nameParts(name)
	return len(parts) > 1 && slices.Contains([]string{"no", "enable", "disable", "skip", "without", "with", "allow", "use"}, parts[0])
}

var (
	secretWords = []string{"passw", "passphrase", "pwd", "secret", "credential", "apikey", "accesskey", "privatekey", "authkey", "encryptionkey",
		"signingkey", "masterkey", "accountkey", "licensekey"}
	secretEnds = []string{"token", "auth", "pass", "cookie", "passin", "passout", "authorization", "psk"}
	// about end the names of what is no secret itself: where it is, how it is used.
	about = []string{"file", "files", "path", "dir", "directory", "ttl", "timeout", "mode", "type", "size", "length", "len", "count", "limit", "policy",
		"method", "plugin", "expiry", "lifetime", "interval", "algorithm", "provider", "url", "uri", "endpoint", "bytes", "rounds", "cost", "bucket",
		"rate", "burst", "refill", "min", "max", "enabled", "required", "cache"}
)

// nameParts are the parts of a name, in lower case: of a-b, a_b, a.b and aB.
func nameParts(name string) []string {
	var parts []string
	start := 0
	cut := func(end int) {
		if start < end {
			parts = append(parts, strings.ToLower(name[start:end]))
		}
	}
	lower := false
	for i, r := range name {
		switch {
		case r == '-' || r == '_' || r == '.':
			cut(i)
			start = i + 1
		case unicode.IsUpper(r) && lower:
			cut(i)
			start = i
		}
		lower = unicode.IsLower(r)
	}
	cut(len(name))
	return parts
}
