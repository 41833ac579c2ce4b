package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// decoders are the functions that take bytes or text apart, by the package that they
// are of. A method counts by its name and the package of what it is called on, as
// Uint16 of binary.LittleEndian does.
var decoders = map[string]*regexp.Regexp{
	"base64":  regexp.MustCompile(`^Decode|^NewDecoder`),
	"binary":  regexp.MustCompile(`^(Read|Decode|Uint\d+|Uvarint|Varint|ReadUvarint|ReadVarint)$`),
	"bufio":   regexp.MustCompile(`^New(Reader|Scanner)`),
	"csv":     regexp.MustCompile(`^NewReader`),
	"elf":     regexp.MustCompile(`^(NewFile|Open)$`),
	"fmt":     regexp.MustCompile(`^(Ss|Fs)can`),
	"gzip":    regexp.MustCompile(`^NewReader`),
	"hex":     regexp.MustCompile(`^Decode|^NewDecoder`),
	"json":    regexp.MustCompile(`^(Unmarshal|NewDecoder)$`),
	"netip":   regexp.MustCompile(`^Parse`),
	"netlink": regexp.MustCompile(`^NewAttributeDecoder`),
	"parquet": regexp.MustCompile(`^(OpenFile|NewReader|NewGenericReader|Read)`),
	"strconv": regexp.MustCompile(`^(Atoi|Parse|Unquote)`),
	"url":     regexp.MustCompile(`^Parse`),
	"xml":     regexp.MustCompile(`^(Unmarshal|NewDecoder)$`),
	"zlib":    regexp.MustCompile(`^NewReader`),
	"zstd":    regexp.MustCompile(`^NewReader`),
}

// parses are the names of functions that take apart what they are given as text,
// bytes or a reader.
var parses = regexp.MustCompile(`^(?i:parse|decode|scan|unmarshal|classify)`)

// notFuzzed are the packages that parse and need no fuzz target, each for its reason.
var notFuzzed = map[string]string{
	"internal/cause":                    "internal/diagnose judges observations of any content with all of its causes (FuzzDiagnose)",
	"internal/catalogue":                "its list of incidents is part of the program",
	"internal/commandline":              "cmd/slowray parses command lines of any content with it (FuzzFlags)",
	"internal/privsep":                  "what a process is reported comes from the slowray that started it, and it has no more rights than its user",
	"internal/sense/app/logtail/rootfs": "the process ID is in a path that slowray made; the mount table is read by internal/sense/host",
	"internal/watch":                    "the numbers are the names of its own threads",
}

// TestParsersAreFuzzed: a package of the program that takes apart what comes from outside
// has a fuzz target at least: kernel files, netlink, configuration, logs, programs,
// captures, answers of servers, what was saved. Those of the lab read what the lab itself
// has started.
func TestParsersAreFuzzed(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}}", "../cmd/slowray").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	parse := 0
	for line := range strings.Lines(string(out)) {
		pkg, ours := strings.CutPrefix(strings.TrimSpace(line), module)
		if !ours || strings.HasPrefix(pkg, "lab") {
			continue
		}
		names, err := filepath.Glob("../" + pkg + "/*.go")
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: no files (%v)", pkg, err)
		}
		why, fuzzed := "", false
		for _, name := range names {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(name, "_test.go") {
				fuzzed = fuzzed || fuzzes(file)
			} else if f := parsing(file); f != "" && why == "" {
				why = filepath.Base(name) + ": " + f
			}
		}
		if why != "" {
			parse++
		}
		switch reason, except := notFuzzed[pkg]; {
		case except && (why == "" || fuzzed):
			t.Errorf("%s (%s) parses nothing any more, or is fuzzed: take the exception out", pkg, reason)
		case !except && why != "" && !fuzzed:
			t.Errorf("%s has no fuzz target, and parses (%s)", pkg, why)
		}
	}
	if parse < 50 {
		t.Errorf("only %d packages were found to parse: the test does not see what it should", parse)
	}
}

// fuzzes says that a file has a fuzz target.
func fuzzes(file *ast.File) bool {
	return slices.ContainsFunc(file.Decls, func(d ast.Decl) bool {
		f, ok := d.(*ast.FuncDecl)
		return ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Fuzz")
	})
}

// parsing is the first function in a file that parses, and what shows it.
func parsing(file *ast.File) (found string) {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if parses.MatchString(f.Name.Name) && slices.ContainsFunc(f.Type.Params.List, func(p *ast.Field) bool { return isInput(p.Type) }) {
			return f.Name.Name
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || found != "" {
				return found == ""
			}
			s, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if re := decoders[root(s.X)]; re != nil && re.MatchString(s.Sel.Name) {
				found = f.Name.Name + " calls " + root(s.X) + "…" + s.Sel.Name
			}
			return true
		})
		if found != "" {
			return found
		}
	}
	return ""
}

// root is the first name of what a method is called on: that of the package.
func root(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return root(e.X)
	}
	return ""
}

// isInput says that values of a type are text, bytes or a reader.
func isInput(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "string"
	case *ast.ArrayType:
		x, ok := e.Elt.(*ast.Ident)
		return ok && (x.Name == "byte" || x.Name == "string")
	case *ast.SelectorExpr:
		return e.Sel.Name == "Reader" || e.Sel.Name == "ReaderAt"
	}
	return false
}
