package language

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// prose is text that is more than a name, a figure or a setting.
var prose = regexp.MustCompile(`[a-z]{2,}[,;:]? [a-z(]{2,}`)

// unprinted are texts that this test takes for part of a title, impact or advice and that
// are none: evidence, what is ruled out, and commands.
var unprinted = []string{
	"the program's default", "memory of process ", "where they ask for it", "its owner", "does not arrive",
	"no thread that answers requests was held up in a write to a pipe",
	"no thread that answers requests was held up by a lock whose owner is known",
	"no harm is left that the findings do not account for",
	"connection reset or closed by the upstream (104)", "no live upstreams", "cannot assign requested address (99)", "connection refused (111)",
	"resource temporarily unavailable (11)", "timed out while reading (110)", "timed out while connecting (110)",
}

// TestNothingMissing reads the source of the causes and of the report: what they can print
// as a title, impact, advice or label is in the catalogue, also where no recorded report has
// it. Evidence may be missing, and is printed in English.
func TestNothingMissing(t *testing.T) {
	l := newChinese(t)
	var catalogue strings.Builder
	for _, s := range l.sentences {
		catalogue.WriteString(s.english + "\n")
	}
	have := catalogue.String()
	s := readSource(t, "../cause")
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		for _, d := range s.files[name].Decls {
			s.inside, _ = d.(*ast.FuncDecl) // a variable is in none, whatever came before it
			ast.Inspect(d, s.printed)
		}
	}
	report := readSource(t, "../report")
	for name, file := range report.files {
		if slices.Contains([]string{"screen.go", "text.go", "change.go", "endpoint.go"}, filepath.Base(name)) {
			report.literals(file, 0)
		}
	}
	if len(s.found) < 300 || len(report.found) < 60 {
		t.Fatalf("only %d texts of causes and %d of the report: this test reads the wrong source", len(s.found), len(report.found))
	}
	for _, found := range []map[string]string{s.found, report.found} {
		for at, text := range found {
			if piece := l.missing(have, text); piece != "" && !slices.Contains(unprinted, text) && !strings.HasPrefix(text, "slowray ") {
				t.Errorf("%s: %q is not in the catalogue (%q)", at, piece, text)
			}
		}
	}
}

// missing is a part of a format, between its verbs, that is in no sentence of the catalogue;
// unless the whole is made of several sentences.
func (l *Language) missing(have, format string) string {
	literals, _ := splitFormat(format)
	for _, piece := range literals {
		if piece = strings.Trim(piece, " ;,:."); !prose.MatchString(piece) || strings.Contains(have, piece) {
			continue
		}
		if whole := l.Text(strings.TrimSpace(strings.Join(literals, "9"))); IsEnglish(whole) || !strings.ContainsFunc(whole, han) {
			return piece
		}
	}
	return ""
}

// TestLossesAreTranslated: the first screen names what was lost.
func TestLossesAreTranslated(t *testing.T) {
	l := newChinese(t)
	loss := regexp.MustCompile(`(?:\blose\(|\{What: )("(?:[^"\\]|\\.)+"), |Loss(?:Sampled|Estimated) += (".+")|\{(".+"), w\.objects\.Lost`)
	found := 0
	for _, pattern := range []string{"../observe/*.go", "../watch/*.go", "../sense/*/*.go", "../record/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.Contains(name, "/function/") {
				continue // of slowray functions, which is not translated
			}
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range loss.FindAllStringSubmatch(string(data), -1) {
				text, err := strconv.Unquote(m[1] + m[2] + m[3])
				if err != nil {
					t.Fatal(name, err)
				}
				found++
				if IsEnglish(l.Text(text)) {
					t.Errorf("%s: %q is not in the catalogue", name, text)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d texts of losses: this test reads the wrong source", found)
	}
}

// source is a package, and the texts of it that are printed, by where they are.
type source struct {
	t         *testing.T
	set       *token.FileSet
	files     map[string]*ast.File
	functions map[string][]*ast.FuncDecl
	tables    map[string]ast.Expr // the variables of the package
	inside    *ast.FuncDecl
	found     map[string]string
	done      map[ast.Node]bool
}

func readSource(t *testing.T, dir string) *source {
	t.Helper()
	s := &source{t: t, set: token.NewFileSet(), files: map[string]*ast.File{}, functions: map[string][]*ast.FuncDecl{}, tables: map[string]ast.Expr{}, found: map[string]string{}, done: map[ast.Node]bool{}}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: no source (%v)", dir, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(s.set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		s.files[name] = file
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				s.functions[d.Name.Name] = append(s.functions[d.Name.Name], d)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR && len(v.Values) == 1 {
						s.tables[v.Names[0].Name] = v.Values[0]
					}
				}
			}
		}
	}
	return s
}

// printed looks for what becomes the title of a cause or finding, its impact or its advice.
func (s *source) printed(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CompositeLit:
		kind, _ := n.Type.(*ast.Ident)
		for _, e := range n.Elts {
			kv, keyed := e.(*ast.KeyValueExpr)
			if !keyed {
				continue
			}
			name, isField := kv.Key.(*ast.Ident)
			if !isField {
				continue
			}
			if kind != nil && slices.Contains([]string{"Cause.Title", "Impact.Of", "Impact.Text", "Fix.Text", "Sight.Text"}, kind.Name+"."+name.Name) ||
				name.Name == "fix" { // of a table of alike causes
				s.literals(kv.Value, 0)
			}
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			field, ok := left.(*ast.SelectorExpr)
			if !ok || i >= len(n.Rhs) {
				continue
			}
			if in, isField := field.X.(*ast.SelectorExpr); field.Sel.Name == "Title" ||
				isField && field.Sel.Name == "Text" && (in.Sel.Name == "Fix" || in.Sel.Name == "Impact") {
				s.literals(n.Rhs[i], 0)
			}
		}
	}
	return true
}

// literals adds the texts of an expression: also of the variables in it, and of what the
// functions of the package return that it calls.
func (s *source) literals(n ast.Node, depth int) {
	if depth > 3 || s.done[n] {
		return
	}
	s.done[n] = true
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.SelectorExpr: // a field is no variable of its name
			s.literals(n.X, depth)
			return false
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				s.found[s.set.Position(n.Pos()).String()] = text
			}
		case *ast.Ident:
			s.assigned(n.Name, depth)
		case *ast.CallExpr:
			for _, f := range s.functions[called(n)] {
				s.returned(f, depth+1)
			}
		}
		return true
	})
}

func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// assigned adds what a variable of the function at hand, or a table of the package, is set to.
func (s *source) assigned(name string, depth int) {
	if table, ok := s.tables[name].(*ast.CompositeLit); ok {
		s.literals(table, depth+1)
	}
	if s.inside == nil || s.inside.Body == nil {
		return
	}
	ast.Inspect(s.inside.Body, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
			for i, left := range a.Lhs {
				if id, ok := left.(*ast.Ident); ok && id.Name == name && name != "because" {
					s.literals(a.Rhs[i], depth+1)
				}
			}
		}
		return true
	})
}

// returned adds what a function that gives text returns.
func (s *source) returned(f *ast.FuncDecl, depth int) {
	if results := f.Type.Results; f.Body == nil || results == nil || len(results.List) != 1 {
		return
	} else if id, ok := results.List[0].Type.(*ast.Ident); !ok || id.Name != "string" {
		return
	}
	outer := s.inside
	s.inside = f
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if r, ok := n.(*ast.ReturnStmt); ok {
			for _, e := range r.Results {
				s.literals(e, depth)
			}
		}
		return true
	})
	s.inside = outer
}
