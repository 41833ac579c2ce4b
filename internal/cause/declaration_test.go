package cause

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// sources are the files of this package, without its tests.
func sources(t *testing.T) (*token.FileSet, []*ast.File) {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return fset, files
}

// TestDeclarationsAreWhole: a cause is whole where it is declared. Nothing is
// added to it in an init function, its id is a constant of type ID, and other
// causes name it by that.
func TestDeclarationsAreWhole(t *testing.T) {
	ids := map[string]bool{}
	for _, c := range Catalogue() {
		ids[string(c.ID)] = true
	}
	fset, files := sources(t)
	for _, f := range files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					t.Errorf("%s: an init function", fset.Position(d.Pos()))
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if v, ok := s.(*ast.ValueSpec); ok && d.Tok == token.CONST && isName(v.Type, "ID") {
						if text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value); err != nil || !ids[text] && v.Names[0].IsExported() {
							t.Errorf("%s: %s is not in the catalogue", fset.Position(s.Pos()), v.Names[0])
						}
					}
				}
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if list, ok := lit.Type.(*ast.ArrayType); ok && isName(list.Elt, "ID") {
				for _, e := range lit.Elts {
					if text, ok := e.(*ast.BasicLit); ok {
						t.Errorf("%s: %s: name it by its constant", fset.Position(e.Pos()), text.Value)
					}
				}
			}
			return true
		})
	}
}

func isName(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// TestLogicReadsNoEnglish: what is written for people is written last. No check
// looks into it to decide something.
func TestLogicReadsNoEnglish(t *testing.T) {
	written := map[string]bool{"Of": true, "Title": true, "Fact": true, "RuledOut": true, "NotChecked": true}
	reads := map[string]bool{"Contains": true, "ContainsAny": true, "HasPrefix": true, "HasSuffix": true, "EqualFold": true, "Index": true, "Cut": true, "Fields": true, "Split": true}
	fset, files := sources(t)
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			fun, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !isName(fun.X, "strings") || !reads[fun.Sel.Name] {
				return true
			}
			for _, arg := range call.Args {
				if s, ok := arg.(*ast.SelectorExpr); ok && written[s.Sel.Name] {
					t.Errorf("%s: strings.%s reads %s", fset.Position(call.Pos()), fun.Sel.Name, s.Sel.Name)
				}
			}
			return true
		})
	}
}

// TestPages reads the page of each cause, and looks for pages of none.
func TestPages(t *testing.T) {
	left := map[string]bool{}
	entries, err := pages.ReadDir("page")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left[e.Name()] = true
	}
	for _, c := range Catalogue() {
		if _, err := PageOf(c.ID); err != nil {
			t.Errorf("%v (a threshold that is new in policy.go: go generate ./internal/cause)", err)
		}
		delete(left, string(c.ID)+".md")
	}
	for name := range left {
		t.Errorf("page/%s: of no cause", name)
	}
	for _, text := range []string{"About.\n\n## Symptoms\n\n- Something else\n", "About.\n\n## Nothing\n\ntext\n", "About.\nMore.\n"} {
		if p, err := parsePage("x", text); err == nil {
			t.Errorf("%q is taken for %+v", text, p)
		}
	}
}
