package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// byPath are the functions that change something at a path, or at a process ID, which
// another user may have made lead elsewhere by then.
var byPath = map[string][]string{
	"os": {"Chmod", "Chown", "Chtimes", "Create", "CreateTemp", "Lchown", "Link", "Mkdir", "MkdirAll", "MkdirTemp", "OpenRoot",
		"Remove", "RemoveAll", "Rename", "Symlink", "Truncate", "WriteFile"},
	"unix": {"Chmod", "Chown", "Fchmodat", "Fchownat", "Kill", "Lchown", "Link", "Linkat", "Lremovexattr", "Lsetxattr", "Mkdir", "Mkdirat", "Mkfifo", "Mknod", "Mknodat",
		"Removexattr", "Rename", "Renameat", "Renameat2", "Rmdir", "Setxattr", "Symlink", "Symlinkat", "Tgkill", "Truncate", "Unlink", "Unlinkat", "Utimes", "UtimesNano", "UtimesNanoAt"},
}

// openers are the functions that open something at a path, with flags.
var openers = map[string][]string{"os": {"OpenFile"}, "unix": {"Open", "Openat", "Openat2"}}

// writing are the flags that let them change it.
var writing = []string{"O_WRONLY", "O_RDWR", "O_CREATE", "O_CREAT", "O_TRUNC", "O_APPEND", "O_TMPFILE"}

// writers are the directories whose code changes files as root.
var writers = []string{"internal/prove", "internal/privsep", "internal/safefile"}

// exceptions may write without internal/safefile, each for its reason. A name that
// ends with a slash is a directory.
var exceptions = map[string]string{
	"internal/safefile/":                "it is the package that does it, and its tests' attacker",
	"internal/prove/loadgen/command.go": "the process group that it ends is that of its own child, not yet waited for",
	"internal/prove/journal/journal.go": "the host's lock is in /run, which is root's alone",
}

// TestFilesAreWrittenBySafefile: internal/safefile is the only way that slowray
// changes a file, for what is checked by path and then changed by path is another
// file by then.
func TestFilesAreWrittenBySafefile(t *testing.T) {
	used := map[string]bool{}
	for _, dir := range writers {
		err := filepath.WalkDir(filepath.Join("..", dir), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			name = filepath.ToSlash(strings.TrimPrefix(name, "../"))
			files := token.NewFileSet()
			parsed, err := parser.ParseFile(files, "../"+name, nil, 0)
			if err != nil {
				return err
			}
			for _, call := range writes(parsed) {
				exception := ""
				for e := range exceptions {
					if name == e || strings.HasSuffix(e, "/") && strings.HasPrefix(name, e) {
						exception = e
					}
				}
				if exception == "" {
					t.Errorf("%s: %s: files are changed by internal/safefile only", files.Position(call.Pos()), text(call.Fun))
				}
				used[exception] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for e, why := range exceptions {
		if !used[e] {
			t.Errorf("%s (%s) changes nothing by path any more: take the exception out", e, why)
		}
	}
}

// writes finds the calls in a file that change something at a path.
func writes(file *ast.File) (found []*ast.CallExpr) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		pkg, name, ok := strings.Cut(text(call.Fun), ".")
		if !ok {
			return true
		}
		if pkg == "syscall" {
			pkg = "unix"
		}
		if slices.Contains(byPath[pkg], name) || slices.Contains(openers[pkg], name) && opensToWrite(call) {
			found = append(found, call)
		}
		return true
	})
	return found
}

// opensToWrite says that the flags of a call let it write, or do not show.
func opensToWrite(call *ast.CallExpr) bool {
	shown := false
	for _, arg := range call.Args {
		write := false
		ast.Inspect(arg, func(n ast.Node) bool {
			if e, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(e.Sel.Name, "O_") {
				shown = true
				write = write || slices.Contains(writing, e.Sel.Name)
			}
			return true
		})
		if write {
			return true
		}
	}
	return !shown
}

// text is the name of a function as it is called: "os.Rename".
func text(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if x, ok := s.X.(*ast.Ident); ok {
		return x.Name + "." + s.Sel.Name
	}
	return ""
}
