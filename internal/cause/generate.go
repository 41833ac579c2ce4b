//go:build ignore

// Generate writes thresholds.go: the constants of policy.go by their names, and the
// floors of slow.go, for the pages of causes.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"log"
	"os"
)

func main() {
	file, err := parser.ParseFile(token.NewFileSet(), "policy.go", nil, 0)
	if err != nil {
		log.Fatal(err)
	}
	var b bytes.Buffer
	b.WriteString("// Code generated from policy.go by generate.go; DO NOT EDIT.\n\npackage cause\n\n")
	b.WriteString("// thresholds are what pages of causes may mention.\nvar thresholds = map[string]any{\n")
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			for _, name := range s.(*ast.ValueSpec).Names {
				fmt.Fprintf(&b, "%q: float64(%s),\n", name.Name, name.Name)
			}
		}
	}
	for _, floor := range []string{"wireFloor", "threadFloor"} {
		fmt.Fprintf(&b, "%q: map[string]float64{\"mean\": %s.mean, \"slow\": %s.slow},\n", floor, floor, floor)
	}
	b.WriteString("}\n")
	out, err := format.Source(b.Bytes())
	if err == nil {
		err = os.WriteFile("thresholds.go", out, 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}
