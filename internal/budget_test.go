package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unbounded are the functions that read a file, a directory or a stream for as long as
// there is something in it, or open one for whoever does, by package.
var unbounded = map[string]*regexp.Regexp{
	"bufio":    regexp.MustCompile(`^New(Reader|ReaderSize|Scanner|ReadWriter)$`),
	"bzip2":    regexp.MustCompile(`^NewReader$`),
	"elf":      regexp.MustCompile(`^(NewFile|Open)$`),
	"filepath": regexp.MustCompile(`^(Glob|Walk|WalkDir)$`),
	"flate":    regexp.MustCompile(`^NewReader`),
	"fs":       regexp.MustCompile(`^(Glob|ReadDir|ReadFile|WalkDir)$`),
	"gzip":     regexp.MustCompile(`^NewReader`),
	"io":       regexp.MustCompile(`^(Copy|CopyBuffer|CopyN|ReadAll)$`),
	"lz4":      regexp.MustCompile(`^NewReader`),
	"os":       regexp.MustCompile(`^(DirFS|Open|OpenFile|OpenInRoot|OpenRoot|ReadDir|ReadFile)$`),
	"syscall":  regexp.MustCompile(`^(Mmap|Open|Openat|Pread|Read|ReadDirent)$`),
	"unix":     regexp.MustCompile(`^(Getdents|Mmap|Open|Openat|Openat2|Pread|Read|ReadDirent)$`),
	"xz":       regexp.MustCompile(`^NewReader`),
	"zlib":     regexp.MustCompile(`^NewReader`),
	"zstd":     regexp.MustCompile(`^NewReader`),
}

// counting are the methods of a budget.Budget that give a reader which takes from it.
var counting = regexp.MustCompile(`^(Reader|ReaderAt|Unpacked)$`)

// ofOthers are the directories of packages that read what other users' programs have
// written, or can make as large as they like.
var ofOthers = []string{
	"internal/sense/app", "internal/sense/callstack", "internal/sense/change", "internal/sense/container", "internal/sense/cpython", "internal/sense/elffile",
	"internal/sense/goroutine", "internal/sense/hotspot", "internal/sense/kube", "internal/sense/packets", "internal/sense/procmem", "internal/sense/symbol",
	"internal/sense/threadcontext",
}

// withoutBudget are the calls of such functions that are right all the same, by file and
// function, each for its reason.
var withoutBudget = map[string]string{
	"app/logtail/prefork/prefork.go unix.Open":     "it opens a root directory (O_PATH), and reads nothing of it",
	"app/logtail/rootfs/read.go unix.Openat":       "rootfs is what opens files of others: it takes each name in a directory from the budget",
	"app/logtail/rootfs/resolve.go unix.Open":      "rootfs is what opens files of others: a root directory (O_PATH)",
	"app/logtail/rootfs/resolve.go unix.Openat":    "rootfs is what opens files of others: O_PATH, a step of a path",
	"app/logtail/rootfs/resolve.go unix.Openat2":   "rootfs is what opens files of others: O_PATH",
	"app/logtail/rootfs/rootfs.go unix.Open":       "rootfs is what opens files of others: what is read of them is taken from the budget",
	"callstack/interpreter/present.go os.ReadDir":  "it lists /proc: the processes of the host",
	"callstack/interpreter/unwinder.go os.ReadDir": "it lists what slowray itself has mapped",
	"callstack/interpreter/unwinder.go os.Open":    "it opens what slowray itself has mapped, and reads nothing of it",
	"callstack/waiting.go os.ReadDir":              "it lists /proc: the processes of the host",
	"container/namer.go filepath.Glob":             "it lists /proc: the processes of the host",
	"elffile/identity.go os.OpenFile":              "elffile is what opens files of programs: regular ones only, and it reads nothing of them",
	"elffile/minidebug.go bufio.NewReader":         "it unpacks memory that was read within the budget",
	"elffile/minidebug.go io.CopyN":                "it takes what it unpacks from the budget before",
	"elffile/section.go io.CopyN":                  "it takes what it unpacks from the budget before",
	"elffile/section.go zlib.NewReader":            "it takes what it unpacks from the budget before",
	"elffile/section.go zstd.NewReader":            "it takes what it unpacks from the budget before",
	"packets/read.go bufio.NewReaderSize":          "a capture that is not packed takes no more than its size, of which one packet is kept at a time",
	"packets/read.go gzip.NewReader":               "what comes out of it is taken from a budget",
	"packets/read.go zstd.NewReader":               "what comes out of it is taken from a budget",
	"procmem/maps.go os.Open":                      "it opens a memory map, and reads it within the budget",
	"symbol/frames.go os.Open":                     "it reads slowray's own memory",
	"symbol/kernel.go os.Open":                     "it opens the symbols of the kernel",
	"symbol/kernel.go bufio.NewScanner":            "it reads the symbols of the kernel",
}

// TestFilesOfOthersAreReadWithinABudget: whoever reads what others have written takes a
// budget.Budget, or asks package budget itself (Head, Names).
func TestFilesOfOthersAreReadWithinABudget(t *testing.T) {
	used := map[string]bool{}
	for _, dir := range ofOthers {
		files := 0
		err := filepath.WalkDir(filepath.Join("..", dir), func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "testdata" || strings.HasSuffix(d.Name(), "test") || d.Name() == "elfbomb"): // for tests only
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
				return nil
			}
			files++
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, 0)
			if err != nil {
				return err
			}
			name = strings.TrimPrefix(filepath.ToSlash(name), "../internal/sense/")
			for _, call := range readsAll(file) {
				exception := name + " " + text(call.Fun)
				if withoutBudget[exception] == "" {
					t.Errorf("%s: %s: what others have written is read within a budget.Budget", set.Position(call.Pos()), text(call.Fun))
				}
				used[exception] = true
			}
			return nil
		})
		if err != nil || files == 0 {
			t.Fatalf("%s: %d files (%v)", dir, files, err)
		}
	}
	for name, reason := range withoutBudget {
		if !used[name] {
			t.Errorf("%s (%s) is not called any more: take the exception out", name, reason)
		}
	}
}

// readsAll finds the calls in a file that read without a bound, but for those that are
// given a reader of a budget.
func readsAll(file *ast.File) (found []*ast.CallExpr) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		pkg, name, _ := strings.Cut(text(call.Fun), ".")
		if re := unbounded[pkg]; re != nil && re.MatchString(name) && !isCounted(call.Args) {
			found = append(found, call)
		}
		return true
	})
	return found
}

// isCounted says that an argument is a reader that takes from a budget.
func isCounted(args []ast.Expr) (is bool) {
	for _, arg := range args {
		call, ok := arg.(*ast.CallExpr)
		if !ok {
			continue
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		is = is || ok && len(call.Args) == 1 && counting.MatchString(s.Sel.Name)
	}
	return is
}
