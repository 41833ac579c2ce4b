package function

import (
	"slices"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// FuzzText reads what people ask for and what the kernel says of its tracepoints and
// functions: arguments and fields are within the records that there are.
func FuzzText(f *testing.F) {
	f.Add("1:str", "usdt:*:query", []byte("\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:__data_loc char[] name;\toffset:24;\tsize:4;\tsigned:1;\n"))
	f.Add("13", "tracepoint:sched:sched_switch", []byte("ffffffff81000000 T _text\n0 t a.b\nffffffff81000010 t do_x\t[mod]\n"))
	f.Add("comm:hex", "kprobe::", []byte("field:x;offset:-1;size:99999999999999999999;"))
	f.Add("", "libc.so.6:malloc", []byte("field:long common_pid;offset:4096;size:8;"))
	f.Fuzz(func(t *testing.T, arg, pattern string, file []byte) {
		budgettest.Within(t, len(arg)+len(pattern)+len(file), budgettest.Usual, func() {
			if a, err := ParseArg(arg); err == nil && (a.Field == "" && (a.Number < 1 || a.Number > 12) || !slices.Contains(argTypes, a.Type) || a.label() == "") {
				t.Errorf("%q is %+v", arg, a)
			}
			if p, err := parsePattern(pattern); err == nil && (p.name == "" || p.text != pattern) {
				t.Errorf("%q is %+v", pattern, p)
			}
			fields, names := parseFormat(file)
			for name, p := range fields {
				if p.offset < 0 || p.offset > 4096 || p.size < 1 || p.size > 8 || !slices.Contains(names, name) {
					t.Errorf("%s: %+v", name, p)
				}
			}
			functions, err := parseFunctions(strings.NewReader(string(file)))
			if err == nil && (!slices.IsSorted(functions) || len(slices.Compact(slices.Clone(functions))) != len(functions)) {
				t.Errorf("%q", functions)
			}
		})
	})
}
